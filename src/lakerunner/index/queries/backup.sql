-- name: patient
-- While pg_dump works, the transaction that exports the snapshot is idle: it must not time out.
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: export
SELECT pg_export_snapshot(), current_setting('server_version_num')::integer

-- name: live
SELECT organization, collector, signal, start_ns, id, bytes, statistics FROM lrdb.segments WHERE state = 'live'

-- name: waiting
SELECT key, size, modified_ns FROM lrdb.source_objects WHERE state = 'seen' AND bucket = %(bucket)s

-- name: ingested
SELECT found.key
FROM unnest(%(keys)s::text[], %(sizes)s::bigint[], %(modified)s::bigint[]) AS found (key, size, modified_ns)
WHERE EXISTS (
    SELECT FROM lrdb.source_objects AS s
    WHERE s.bucket = %(bucket)s AND s.key = found.key AND s.size = found.size AND s.modified_ns = found.modified_ns
      AND s.state = 'done')

-- name: schema
SELECT to_regnamespace('lrdb') IS NOT NULL, current_setting('server_version_num')::integer

-- name: begin_restore
INSERT INTO lrdb.migrations (name, checksum) VALUES ('restoring', '')

-- name: end_restore
DELETE FROM lrdb.migrations WHERE name = 'restoring'

-- name: take_bucket
UPDATE lrdb.source_objects SET bucket = %(new)s WHERE bucket = %(old)s

-- name: take_place
UPDATE lrdb.source_objects AS s SET etag = placed.new_etag, modified_ns = placed.modified_ns
FROM unnest(%(keys)s::text[], %(etags)s::text[], %(new_etags)s::text[], %(modified)s::bigint[])
    AS placed (key, etag, new_etag, modified_ns)
WHERE s.bucket = %(bucket)s AND s.key = placed.key AND s.etag = placed.etag

-- name: forget_outbox
DELETE FROM lrdb.outbox WHERE topic = ANY (%(topics)s)

-- name: forget_messages
DELETE FROM lrdb.bus_messages WHERE topic = ANY (%(topics)s)

-- name: forget_claims
DELETE FROM lrdb.bus_claims WHERE topic = ANY (%(topics)s)

-- name: announce_again
-- Makes them overdue, so that the reminder finds them when it starts.
UPDATE lrdb.source_objects SET seen_at = 'epoch' WHERE state = 'seen'
