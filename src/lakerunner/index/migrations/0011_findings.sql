-- What was read of a raw object, and what was not understood of it. `partial`: done, but for lines that could not be
-- read. `dismissed`: it had failed, and a newer version of it is done, or somebody has looked at it.
ALTER TABLE lrdb.source_objects
    DROP CONSTRAINT source_objects_state_check,
    DROP CONSTRAINT source_objects_check,
    ADD CONSTRAINT source_objects_state_check
        CHECK (state IN ('seen', 'done', 'partial', 'failed', 'dismissed')),
    ADD CONSTRAINT source_objects_reason_check
        CHECK ((state IN ('failed', 'dismissed')) = (reason IS NOT NULL)),
    ADD COLUMN rows     bigint,
    ADD COLUMN lines    bigint,
    ADD COLUMN rejected bigint,
    ADD COLUMN rejects  json,  -- the first of them; json, since an excerpt may hold \u0000, which jsonb refuses
    ADD COLUMN notes    json;
-- Other versions of an object, which a commit must look at.
CREATE INDEX source_objects_open ON lrdb.source_objects (bucket, key) WHERE state IN ('seen', 'failed');
CREATE INDEX source_objects_rejects ON lrdb.source_objects (key, id) WHERE rejects IS NOT NULL;
