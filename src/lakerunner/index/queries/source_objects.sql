-- Inserts go in the order of the identity and row locks in the order of the id, here and everywhere,
-- so that no two transactions wait for each other in a ring.

-- name: announce
-- If a batch names an identity twice, the first one counts.
WITH arrived AS (
    SELECT DISTINCT ON (bucket, key, etag) *
    FROM unnest(
        %(buckets)s::text[], %(keys)s::text[], %(etags)s::text[], %(sizes)s::bigint[], %(modified)s::bigint[],
        %(organizations)s::uuid[], %(collectors)s::text[], %(signals)s::text[],
        %(topics)s::text[], %(payloads)s::bytea[]
    ) WITH ORDINALITY
        AS a (bucket, key, etag, size, modified_ns, organization, collector, signal, topic, payload, place)
    ORDER BY bucket, key, etag, place
), new AS (
    INSERT INTO lrdb.source_objects
        (bucket, key, etag, size, modified_ns, organization, collector, signal, state)
    SELECT bucket, key, etag, size, modified_ns, organization, collector, signal, 'seen'
    FROM arrived ORDER BY bucket, key, etag
    ON CONFLICT (bucket, key, etag) DO NOTHING
    RETURNING bucket, key, etag
)
INSERT INTO lrdb.outbox (topic, payload)
SELECT topic, payload FROM new JOIN arrived USING (bucket, key, etag) ORDER BY place

-- name: retry
-- A source that was set aside before its organization was known gets it now.
WITH arrived AS (
    SELECT DISTINCT ON (bucket, key, etag) *
    FROM unnest(
        %(buckets)s::text[], %(keys)s::text[], %(etags)s::text[],
        %(organizations)s::uuid[], %(collectors)s::text[], %(signals)s::text[],
        %(topics)s::text[], %(payloads)s::bytea[]
    ) WITH ORDINALITY AS a (bucket, key, etag, organization, collector, signal, topic, payload, place)
    ORDER BY bucket, key, etag, place
), failed AS (
    SELECT s.id, a.organization, a.collector, a.signal, a.topic, a.payload, a.place
    FROM arrived AS a JOIN lrdb.source_objects AS s USING (bucket, key, etag)
    WHERE s.state = 'failed' AND (s.organization IS NULL OR s.organization = a.organization)
    ORDER BY s.id FOR UPDATE OF s
), again AS (
    UPDATE lrdb.source_objects AS s
    SET state = 'seen', reason = NULL, ended_at = NULL, attempts = 0, company = 0,
        organization = f.organization, collector = f.collector, signal = f.signal
    FROM failed AS f WHERE s.id = f.id
    RETURNING s.id
)
INSERT INTO lrdb.outbox (topic, payload)
SELECT topic, payload FROM again JOIN failed USING (id) ORDER BY place

-- name: overdue
SELECT bucket, key, etag, size, modified_ns, organization, collector, signal, state, reason, seen_at, ended_at,
       rows, coalesce(rejected, 0), notes
FROM lrdb.source_objects
WHERE state = 'seen' AND seen_at < now() - make_interval(secs => %(seconds)s)
ORDER BY id LIMIT %(limit)s

-- name: remind
-- seen_at is set to now, so that several reminders at the same time send one message.
WITH arrived AS (
    SELECT DISTINCT ON (bucket, key, etag) *
    FROM unnest(
        %(buckets)s::text[], %(keys)s::text[], %(etags)s::text[], %(topics)s::text[], %(payloads)s::bytea[]
    ) AS a (bucket, key, etag, topic, payload)
), again AS (
    UPDATE lrdb.source_objects AS s SET seen_at = now()
    WHERE s.id IN (
        SELECT s.id FROM arrived AS a JOIN lrdb.source_objects AS s USING (bucket, key, etag)
        WHERE s.state = 'seen' AND s.seen_at < now() - make_interval(secs => %(seconds)s)
        ORDER BY s.id FOR UPDATE OF s SKIP LOCKED)
    RETURNING s.bucket, s.key, s.etag
)
INSERT INTO lrdb.outbox (topic, payload)
SELECT topic, payload FROM again JOIN arrived USING (bucket, key, etag)

-- name: set_aside
INSERT INTO lrdb.source_objects AS s
    (bucket, key, etag, size, modified_ns, organization, collector, signal, state, reason, ended_at)
VALUES
    (%(bucket)s, %(key)s, %(etag)s, %(size)s, %(modified_ns)s,
     %(organization)s, %(collector)s, %(signal)s, 'failed', %(reason)s, now())
ON CONFLICT (bucket, key, etag) DO UPDATE
SET state = 'failed', reason = EXCLUDED.reason, ended_at = EXCLUDED.ended_at
WHERE s.state = 'seen'

-- name: unknown
-- LIMIT keeps this one lookup per key however the table grows: a listing comes every second.
SELECT found.key, found.size, found.modified_ns
FROM unnest(%(keys)s::text[], %(sizes)s::bigint[], %(modified)s::bigint[]) WITH ORDINALITY
    AS found (key, size, modified_ns, place)
LEFT JOIN LATERAL (
    SELECT true AS known FROM lrdb.source_objects AS s
    WHERE s.bucket = %(bucket)s AND s.key = found.key
      AND s.size = found.size AND s.modified_ns = found.modified_ns
    LIMIT 1
) AS row ON true
WHERE row.known IS NULL
ORDER BY found.place

-- name: touch
UPDATE lrdb.source_objects SET modified_ns = %(modified_ns)s
WHERE bucket = %(bucket)s AND key = %(key)s AND etag = %(etag)s

-- name: states
SELECT s.bucket, s.key, s.etag, s.state
FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
JOIN lrdb.source_objects AS s USING (bucket, key, etag)

-- name: settled
SELECT s.bucket, s.key, s.etag
FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
JOIN lrdb.source_objects AS s USING (bucket, key, etag)
WHERE s.state <> 'seen' OR s.signal <> %(signal)s

-- name: attempts
SELECT s.bucket, s.key, s.etag, s.attempts, s.company
FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
JOIN lrdb.source_objects AS s USING (bucket, key, etag)
WHERE s.company > 0

-- name: begin
UPDATE lrdb.source_objects AS s
SET attempts = CASE WHEN s.company = %(company)s THEN least(s.attempts, 32000) + 1 ELSE 1 END, company = %(company)s
WHERE s.id IN (
    SELECT s.id
    FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
    JOIN lrdb.source_objects AS s USING (bucket, key, etag)
    WHERE s.state = 'seen' ORDER BY s.id FOR UPDATE OF s)

-- name: give_back
UPDATE lrdb.source_objects AS s SET attempts = s.attempts - 1
WHERE s.id IN (
    SELECT s.id
    FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
    JOIN lrdb.source_objects AS s USING (bucket, key, etag)
    WHERE s.state = 'seen' AND s.attempts > 0 ORDER BY s.id FOR UPDATE OF s)

-- name: list
SELECT bucket, key, etag, size, modified_ns, organization, collector, signal, state, reason, seen_at, ended_at,
       rows, coalesce(rejected, 0), notes
FROM lrdb.source_objects
WHERE (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(pattern)s::text IS NULL OR key LIKE %(pattern)s)
  AND (%(organization)s::uuid IS NULL OR organization = %(organization)s OR (%(unplaced)s AND organization IS NULL))
ORDER BY id DESC LIMIT %(limit)s

-- name: counts
SELECT state, count(*) FROM lrdb.source_objects
WHERE %(organization)s::uuid IS NULL OR organization = %(organization)s OR (%(unplaced)s AND organization IS NULL)
GROUP BY state

-- name: rejects
-- The rejects of the newest version that has any.
SELECT etag, lines, rejected, rejects FROM lrdb.source_objects
WHERE key = %(key)s AND rejects IS NOT NULL
  AND (organization = %(organization)s OR (%(unplaced)s AND organization IS NULL))
ORDER BY id DESC LIMIT 1

-- name: dismiss
-- Failed versions become dismissed, partial ones done.
UPDATE lrdb.source_objects AS s
SET state = CASE state WHEN 'failed' THEN 'dismissed' ELSE 'done' END,
    reason = left('dismissed by hand. It had failed: ' || reason, 2000)
WHERE s.id IN (
    SELECT id FROM lrdb.source_objects
    WHERE key = %(key)s AND state IN ('failed', 'partial')
      AND (organization = %(organization)s OR (%(unplaced)s AND organization IS NULL))
    ORDER BY id FOR UPDATE)

-- name: lock
-- The named objects, and other versions of them that are not done, so that the order in which versions end does not matter.
SELECT s.bucket, s.key, s.etag, s.id, s.state FROM lrdb.source_objects AS s
WHERE s.id IN (
    SELECT o.id
    FROM unnest(%(buckets)s::text[], %(keys)s::text[], %(etags)s::text[]) AS named (bucket, key, etag)
    JOIN lrdb.source_objects AS o USING (bucket, key, etag)
    UNION
    SELECT o.id
    FROM unnest(%(buckets)s::text[], %(keys)s::text[]) AS named (bucket, key)
    JOIN lrdb.source_objects AS o USING (bucket, key)
    WHERE o.state IN ('seen', 'failed'))
ORDER BY s.id FOR UPDATE

-- name: insert
INSERT INTO lrdb.source_objects (bucket, key, etag, size, modified_ns, organization, state)
SELECT bucket, key, etag, size, modified_ns, %(organization)s, 'seen'
FROM unnest(
    %(buckets)s::text[], %(keys)s::text[], %(etags)s::text[], %(sizes)s::bigint[], %(modified)s::bigint[]
) AS a (bucket, key, etag, size, modified_ns)
ORDER BY bucket, key, etag
ON CONFLICT (bucket, key, etag) DO NOTHING
RETURNING bucket, key, etag, id

-- name: finish
UPDATE lrdb.source_objects AS s
SET state = ended.state, reason = ended.reason, ended_at = now(), rows = ended.rows, lines = ended.lines,
    rejected = ended.rejected, rejects = ended.rejects::json, notes = ended.notes::json
FROM unnest(
    %(ids)s::bigint[], %(states)s::text[], %(reasons)s::text[], %(rows)s::bigint[], %(lines)s::bigint[],
    %(rejected)s::bigint[], %(rejects)s::text[], %(notes)s::text[]
) AS ended (id, state, reason, rows, lines, rejected, rejects, notes)
WHERE s.id = ended.id

-- name: reroute
-- A source that another worker has already rerouted to this signal is not sent again.
WITH found AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(signals)s::text[], %(topics)s::text[], %(payloads)s::bytea[])
        AS f (id, signal, topic, payload)
), moved AS (
    UPDATE lrdb.source_objects AS s SET signal = f.signal, attempts = 0, company = 0
    FROM found AS f WHERE s.id = f.id AND s.signal IS DISTINCT FROM f.signal
    RETURNING s.id
)
INSERT INTO lrdb.outbox (topic, payload)
SELECT topic, payload FROM moved JOIN found USING (id) ORDER BY id

-- name: supersede
-- Failed versions of these keys of which a newer one is done.
UPDATE lrdb.source_objects AS old
SET state = 'dismissed', reason = left('a newer version of the object is done. This one had failed: ' || reason, 2000)
WHERE old.id IN (
    SELECT f.id
    FROM unnest(%(buckets)s::text[], %(keys)s::text[]) AS named (bucket, key)
    JOIN lrdb.source_objects AS f USING (bucket, key)
    WHERE f.state = 'failed' AND EXISTS (
        SELECT FROM lrdb.source_objects AS d
        WHERE d.bucket = f.bucket AND d.key = f.key AND d.state IN ('done', 'partial')
          AND (d.modified_ns, d.id) > (f.modified_ns, f.id)))

-- name: failed_as
SELECT count(*) FROM (
    SELECT FROM lrdb.source_objects
    WHERE state = 'failed' AND etag = %(etag)s AND organization IS NOT DISTINCT FROM %(organization)s
    LIMIT %(most)s
) AS found
