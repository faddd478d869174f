-- The queries of the sweeper. Times come from the caller: one clock for the index, the store and the rows.

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000

-- name: past
-- Live segments past their retention, by their end, whether they go (model/retention_policy.py, Cutoff.is_due), and whether
-- rollups that are kept lack them.
SELECT id, organization, collector, signal, frequency_ms, start_ns, end_ns,
       bytes + coalesce((SELECT sum(value::bigint) FROM json_each_text(statistics -> 'side_bytes')), 0)::bigint,
       (rolled OR end_ns <= %(unneeded_ns)s
        OR (end_ns <= %(waited_ns)s AND created_at <= to_timestamp(%(born_ns)s::float8 / 1e9))),
       NOT rolled AND end_ns > %(unneeded_ns)s
FROM lrdb.segments
WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = %(frequency_ms)s AND state = 'live'
  AND end_ns <= %(before_ns)s
  AND end_ns >= %(after_end)s AND (end_ns, id) > (%(after_end)s, %(after_id)s)
ORDER BY end_ns, id LIMIT %(limit)s

-- name: expire
-- A segment that a commit has locked is skipped: the commit replaces it or rolls it up, and the next sweep decides.
WITH due AS (
    SELECT id FROM lrdb.segments
    WHERE id = ANY(%(ids)s::uuid[]) AND organization = %(organization)s AND signal = %(signal)s
      AND frequency_ms = %(frequency_ms)s AND state = 'live' AND end_ns <= %(before_ns)s
      AND (rolled OR end_ns <= %(unneeded_ns)s
           OR (end_ns <= %(waited_ns)s AND created_at <= to_timestamp(%(born_ns)s::float8 / 1e9)))
    ORDER BY id FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE lrdb.segments AS s SET state = 'expired', replaced_at = to_timestamp(%(now_ns)s::float8 / 1e9)
    FROM due WHERE s.id = due.id
    RETURNING s.id, s.collector, s.start_ns, s.end_ns, s.rolled, s.fingerprints
), known AS (
    INSERT INTO lrdb.expired (organization, signal, collector, frequency_ms, before_ns)
    SELECT %(organization)s, %(signal)s, collector, %(frequency_ms)s, max(end_ns) FROM expired
    GROUP BY collector ORDER BY collector
    ON CONFLICT (organization, signal, collector, frequency_ms)
    DO UPDATE SET before_ns = greatest(lrdb.expired.before_ns, excluded.before_ns)
), unrolled AS (
    SELECT collector, start_ns - mod(start_ns, %(hour)s) AS hour_ns, start_ns, end_ns, one
    FROM expired LEFT JOIN LATERAL unnest(fingerprints) AS one ON true
    WHERE NOT rolled AND cardinality(%(coarser)s::integer[]) > 0
), never_rolled AS (
    INSERT INTO lrdb.expired_unrolled AS known
        (organization, collector, frequency_ms, hour_ns, start_ns, end_ns, fingerprints)
    SELECT %(organization)s, collector, %(frequency_ms)s, hour_ns, min(start_ns), max(end_ns),
           CASE WHEN count(DISTINCT one) > %(most)s THEN ARRAY[%(incomplete)s::bigint]
                ELSE coalesce(array_agg(DISTINCT one) FILTER (WHERE one IS NOT NULL), '{}') END
    FROM unrolled GROUP BY collector, hour_ns ORDER BY collector, hour_ns
    ON CONFLICT (organization, collector, frequency_ms, hour_ns) DO UPDATE
    SET start_ns = least(known.start_ns, excluded.start_ns), end_ns = greatest(known.end_ns, excluded.end_ns),
        fingerprints = (
            SELECT CASE WHEN count(DISTINCT one) > %(most)s THEN ARRAY[%(incomplete)s::bigint]
                        ELSE coalesce(array_agg(DISTINCT one), '{}') END
            FROM unnest(known.fingerprints || excluded.fingerprints) AS one)
)
SELECT id FROM expired

-- name: settle_unrolled
-- If no tier keeps the time of rows that were never rolled up, it has expired for all buckets of that time: one time for
-- each tier records this, instead of a row for each hour.
WITH settled AS (
    DELETE FROM lrdb.expired_unrolled
    WHERE organization = %(organization)s AND frequency_ms = %(frequency_ms)s AND end_ns <= %(unneeded_ns)s
    RETURNING collector, end_ns
)
INSERT INTO lrdb.expired (organization, signal, collector, frequency_ms, before_ns)
SELECT %(organization)s, %(signal)s, collector, coarser, max(end_ns)
FROM settled CROSS JOIN unnest(%(coarser)s::integer[]) AS coarser
GROUP BY collector, coarser ORDER BY collector, coarser
ON CONFLICT (organization, signal, collector, frequency_ms)
DO UPDATE SET before_ns = greatest(lrdb.expired.before_ns, excluded.before_ns)

-- name: expired_before
SELECT before_ns FROM lrdb.expired
WHERE organization = %(organization)s AND signal = 'metrics' AND collector = %(collector)s
  AND frequency_ms = %(frequency_ms)s

-- name: ended
SELECT id, organization, collector, signal, frequency_ms, start_ns, state,
       (extract(epoch FROM replaced_at) * 1000000)::bigint * 1000 AS ended_ns, replaced_at
FROM lrdb.segments
WHERE state <> 'live' AND replaced_at <= to_timestamp(%(before_ns)s::float8 / 1e9)
  AND (%(after_time)s::timestamptz IS NULL OR (replaced_at, id) > (%(after_time)s::timestamptz, %(after_id)s::uuid))
ORDER BY replaced_at, id LIMIT %(limit)s

-- name: forget
DELETE FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[]) AND state <> 'live'

-- name: known
SELECT id FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[])

-- name: live
SELECT id, rolled FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[]) AND state = 'live'

-- name: done_sources
-- Listed objects that were ingested in exactly this version, that long ago. Not keys with another version that is not
-- ingested, or failed and not dismissed: the listing might show that one. Not partial ones either: their rejected lines
-- are nowhere else.
SELECT found.place
FROM unnest(%(keys)s::text[], %(etags)s::text[], %(sizes)s::bigint[], %(modified)s::bigint[]) WITH ORDINALITY
    AS found (key, etag, size, modified_ns, place)
WHERE EXISTS (
    SELECT FROM lrdb.source_objects AS s
    WHERE s.bucket = %(bucket)s AND s.key = found.key AND s.state = 'done'
      AND s.size = found.size AND s.ended_at <= to_timestamp(%(before_ns)s::float8 / 1e9)
      AND (s.etag = found.etag OR (found.etag = '' AND s.modified_ns = found.modified_ns)))
  AND NOT EXISTS (
    SELECT FROM lrdb.source_objects AS s
    WHERE s.bucket = %(bucket)s AND s.key = found.key AND s.state NOT IN ('done', 'dismissed'))
ORDER BY found.place

-- name: old_pushes
SELECT count(*), (extract(epoch FROM min(pushed_at)) * 1000000)::bigint * 1000
FROM lrdb.push_objects WHERE pushed_at < to_timestamp(%(before_ns)s::float8 / 1e9)

-- name: forget_pushes
-- Ids grow with time: the oldest rows are the first. Rows that a push endpoint has locked are skipped.
WITH oldest AS MATERIALIZED (
    SELECT id, pushed_at FROM lrdb.push_objects ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM lrdb.push_objects AS o USING oldest
WHERE o.id = oldest.id AND oldest.pushed_at < to_timestamp(%(before_ns)s::float8 / 1e9)

-- name: failed_work
SELECT topic, digest, payload, organization, (extract(epoch FROM first_at) * 1000000)::bigint * 1000
FROM lrdb.failed_work
WHERE (topic, digest) > (%(after_topic)s, %(after_digest)s::bytea)
ORDER BY topic, digest LIMIT %(limit)s

-- name: forget_work
DELETE FROM lrdb.failed_work AS w
USING unnest(%(topics)s::text[], %(digests)s::bytea[]) AS void (topic, digest)
WHERE w.topic = void.topic AND w.digest = void.digest
