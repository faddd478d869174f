-- name: insert
INSERT INTO lrdb.outbox (topic, payload)
SELECT topic, payload FROM unnest(%(topics)s::text[], %(payloads)s::bytea[]) WITH ORDINALITY AS a (topic, payload, place)
ORDER BY place

-- name: notify
-- Received by Outbox.wait once the transaction is committed.
SELECT pg_notify('lrdb_outbox', '')

-- name: listen
LISTEN lrdb_outbox

-- name: take
-- Deleted in a transaction that is committed after publishing, so no message is lost.
WITH batch AS MATERIALIZED (
    SELECT id FROM lrdb.outbox ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM lrdb.outbox AS o USING batch AS b WHERE o.id = b.id
RETURNING o.id, o.topic, o.payload
