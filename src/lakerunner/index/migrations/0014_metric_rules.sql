-- Rules that make metrics of telemetry (docs/formats/materialization.md): a row for each version. A dropped rule, and
-- one that another version replaced, has ended; its parts stay until they are swept.
CREATE TABLE lrdb.metric_rules (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    name         text NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    definition   jsonb NOT NULL,              -- as MetricRule.to_json writes it
    paused       text,                        -- why it makes no parts although it is enabled; null: it does
    created_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,                 -- null: this is the rule
    UNIQUE (organization, name, version)
);
CREATE UNIQUE INDEX metric_rules_current ON lrdb.metric_rules (organization, name) WHERE ended_at IS NULL;

-- Which rule versions were evaluated over a segment; most segments share theirs with many others. null: none.
CREATE TABLE lrdb.rule_sets (
    id    bigint PRIMARY KEY,                 -- digest of the versions
    rules bigint[] NOT NULL                   -- sorted
);
ALTER TABLE lrdb.segments ADD rule_set bigint REFERENCES lrdb.rule_sets;
