-- Keys made before roles could ask and bring telemetry: they still can, and no more.
ALTER TABLE lrdb.api_keys
    ADD roles          text[] NOT NULL DEFAULT '{read,write}'
                       CHECK (roles <@ '{read,write,admin}' AND cardinality(roles) > 0),
    ADD rotated_at     timestamptz,
    ADD previous_hash  bytea UNIQUE,         -- the secret before the last rotation
    ADD previous_until timestamptz,          -- and when it dies
    ADD CHECK ((previous_hash IS NULL) = (previous_until IS NULL));
ALTER TABLE lrdb.api_keys ALTER roles DROP DEFAULT;

-- Null: as the settings say.
ALTER TABLE lrdb.organizations
    ADD queries_per_second double precision CHECK (queries_per_second > 0),
    ADD concurrent_queries integer CHECK (concurrent_queries > 0);
