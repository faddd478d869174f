-- The queries of `lakerunner fsck`, `lakerunner repair` and `lakerunner status`. Read only.

-- name: live
-- Live segments of an organization in the order of their ids, a page at a time.
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND state = 'live' AND id > %(after)s
ORDER BY id LIMIT %(limit)s

-- name: tier
-- Live segments of a collector's tier with a row in the range, in the order in which they came in.
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND collector = %(collector)s AND signal = %(signal)s
  AND frequency_ms = %(frequency_ms)s AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
ORDER BY ingested, id

-- name: count_live
SELECT count(*) FROM lrdb.segments WHERE organization = %(organization)s AND state = 'live'

-- name: still_live
SELECT id FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[]) AND state = 'live'

-- name: states
-- The state of those of these ids that exist, and for how long they have not been live.
SELECT id, state, coalesce(extract(epoch FROM now() - replaced_at), 0)::float8
FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[])

-- name: doubled
-- Live segments and the live ones that they replaced: the rows of these would be counted twice.
SELECT s.id, s.collector, s.signal, i.id
FROM lrdb.segments AS s CROSS JOIN LATERAL unnest(s.inputs) AS given (id) JOIN lrdb.segments AS i ON i.id = given.id
WHERE s.organization = %(organization)s AND s.state = 'live' AND s.inputs IS NOT NULL AND i.state = 'live'
ORDER BY s.id, i.id LIMIT %(limit)s

-- name: crowded
-- Hours in which two or more live segments of raw rows of one collector overlap. Sorted by their start, a segment
-- overlaps one before it exactly where it starts before the latest end of those.
WITH ordered AS (
    SELECT collector, signal, start_ns, end_ns, max(end_ns) OVER (
        PARTITION BY collector, signal ORDER BY start_ns, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_ns
    FROM lrdb.segments WHERE organization = %(organization)s AND state = 'live' AND frequency_ms = 0
)
SELECT DISTINCT collector, signal, hour
FROM ordered, LATERAL generate_series(
    floor(start_ns / %(hour_ns)s::numeric)::bigint,
    floor((least(end_ns, reached_ns) - 1) / %(hour_ns)s::numeric)::bigint
) AS hour
WHERE start_ns < reached_ns
ORDER BY collector, signal, hour

-- name: rolled
-- Ids of live segments whose rows are in buckets of the next tier, in a random order by the seed.
SELECT id FROM lrdb.segments
WHERE organization = %(organization)s AND state = 'live' AND signal = 'metrics' AND rolled
  AND frequency_ms < %(last_tier)s
ORDER BY hashtextextended(id::text, %(seed)s), id LIMIT %(limit)s

-- name: without_windows
-- Live segments of a tier that are marked as rolled up while no live segment of the next tier has a bucket of theirs.
-- A bucket is identified by its end: the first one that is not before the time in ms. Where either has expired, nothing
-- is reported as missing.
WITH rolled AS (
    SELECT id, collector,
           ceil(floor(start_ns / 1e6) / %(target_ms)s::numeric) * %(target_ms)s * 1000000 AS first_ns,
           ceil(floor((end_ns - 1) / 1e6) / %(target_ms)s::numeric) * %(target_ms)s * 1000000 AS last_ns
    FROM lrdb.segments AS s
    WHERE organization = %(organization)s AND signal = 'metrics' AND frequency_ms = %(frequency_ms)s
      AND state = 'live' AND rolled AND start_ns >= %(since_ns)s
      AND start_ns >= ALL (
          SELECT before_ns FROM lrdb.expired AS e
          WHERE e.organization = %(organization)s AND e.signal = 'metrics' AND e.collector = s.collector
            AND e.frequency_ms IN (%(frequency_ms)s, %(target_ms)s))
)
SELECT id FROM rolled AS r
WHERE NOT EXISTS (
    SELECT FROM lrdb.segments AS w
    WHERE w.organization = %(organization)s AND w.signal = 'metrics' AND w.frequency_ms = %(target_ms)s
      AND w.state = 'live' AND w.collector = r.collector AND w.start_ns <= r.last_ns AND w.end_ns > r.first_ns)
ORDER BY id LIMIT %(limit)s

-- name: endless_sources
-- Done sources without a time of their end, or without an organization.
SELECT key, ended_at IS NULL FROM lrdb.source_objects
WHERE state IN ('done', 'partial') AND organization = %(organization)s
  AND (ended_at IS NULL OR collector IS NULL OR signal IS NULL)
ORDER BY id LIMIT %(limit)s

-- name: sources
-- How many objects are in each state; for those that are not done, the oldest.
WITH mine AS (
    SELECT id, key, state, coalesce(ended_at, seen_at) AS since, seen_at FROM lrdb.source_objects
    WHERE %(organization)s::uuid IS NULL OR organization = %(organization)s
)
SELECT state, count(*), (array_agg(key ORDER BY id) FILTER (WHERE state <> 'done'))[1],
       (max(extract(epoch FROM now() - since)) FILTER (WHERE state <> 'done'))::float8,
       count(*) FILTER (WHERE state = 'seen' AND seen_at < now() - make_interval(secs => %(stale_seconds)s))
FROM mine GROUP BY state

-- name: count_sources
SELECT count(*) FROM lrdb.source_objects WHERE organization = %(organization)s

-- name: unplaced
-- Objects that belong to no known organization.
SELECT count(*) FROM lrdb.source_objects WHERE organization IS NULL

-- name: failed_work
SELECT topic, state, count(*), max(extract(epoch FROM now() - first_at))::float8,
       (array_agg(reason ORDER BY first_at))[1]
FROM lrdb.failed_work WHERE %(organization)s::uuid IS NULL OR organization = %(organization)s
GROUP BY topic, state ORDER BY topic, state

-- name: outbox
SELECT topic, count(*), min(id) FROM lrdb.outbox GROUP BY topic ORDER BY topic

-- name: levels
-- Live segments by what they hold and how often they were merged.
SELECT signal, frequency_ms, level, count(*), sum(rows)::bigint, sum(bytes)::bigint,
       count(*) FILTER (WHERE aside IS NOT NULL)
FROM lrdb.segments
WHERE state = 'live' AND (%(organization)s::uuid IS NULL OR organization = %(organization)s)
GROUP BY signal, frequency_ms, level ORDER BY signal, frequency_ms, level

-- name: unrolled
-- By tier: metrics whose rows are in no bucket of the next one yet.
SELECT frequency_ms, count(*), max(extract(epoch FROM now() - created_at))::float8
FROM lrdb.segments
WHERE state = 'live' AND signal = 'metrics' AND NOT rolled AND frequency_ms < %(last_tier)s
  AND (%(organization)s::uuid IS NULL OR organization = %(organization)s)
GROUP BY frequency_ms ORDER BY frequency_ms

-- name: unmerged
-- By signal: segments that were never merged although their hour has another; metrics only if they are rolled up.
WITH boxes AS (
    SELECT signal, count(*) AS segments, min(created_at) AS since
    FROM lrdb.segments
    WHERE state = 'live' AND level = 0 AND aside IS NULL AND bytes < %(target_bytes)s
      AND (signal <> 'metrics' OR rolled OR frequency_ms >= %(last_tier)s)
      AND (%(organization)s::uuid IS NULL OR organization = %(organization)s)
    GROUP BY organization, collector, signal, frequency_ms, sort_version, rolled,
             floor(start_ns / %(hour_ns)s::numeric)
    HAVING count(*) > 1
)
SELECT signal, sum(segments)::bigint, max(extract(epoch FROM now() - since))::float8
FROM boxes GROUP BY signal ORDER BY signal

-- name: ended
-- Segments that are no longer live and whose files may exist: by state, and whether the grace time is over.
SELECT state, replaced_at < now() - make_interval(secs => %(grace_seconds)s) AS due, count(*), sum(bytes)::bigint
FROM lrdb.segments
WHERE state <> 'live' AND (%(organization)s::uuid IS NULL OR organization = %(organization)s)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: past_retention
-- Live segments all of whose rows are older than their organization keeps them. The settings' values come as arrays.
SELECT s.signal, s.frequency_ms, count(*), sum(s.bytes)::bigint
FROM lrdb.segments AS s
LEFT JOIN lrdb.retention AS r USING (organization, signal, frequency_ms)
LEFT JOIN unnest(%(signals)s::text[], %(frequencies)s::integer[], %(seconds)s::bigint[])
    AS d (signal, frequency_ms, seconds) USING (signal, frequency_ms)
WHERE s.state = 'live' AND (%(organization)s::uuid IS NULL OR s.organization = %(organization)s)
  AND s.end_ns <= %(now_ns)s
      - CASE WHEN r.organization IS NULL THEN d.seconds ELSE r.seconds END::numeric * 1000000000
GROUP BY 1, 2 ORDER BY 1, 2

-- name: born
SELECT id, created_at FROM lrdb.segments WHERE id = ANY(%(ids)s::uuid[])

-- name: sources_until
-- Raw objects that gave rows and ended until `born`, the latest first; exactly then if `exact`: their organization is
-- then certain, even if one was never announced.
SELECT bucket, key, etag, size, modified_ns, organization, collector, signal, state, reason, seen_at, ended_at,
       rows, coalesce(rejected, 0), notes
FROM lrdb.source_objects
WHERE organization = %(organization)s AND state IN ('done', 'partial') AND coalesce(rows, 1) > 0
  AND CASE WHEN %(exact)s THEN ended_at = %(born)s AND coalesce(collector, %(collector)s) = %(collector)s
                               AND coalesce(signal, %(signal)s) = %(signal)s
           ELSE ended_at <= %(born)s AND collector = %(collector)s AND signal = %(signal)s END
ORDER BY ended_at DESC, id DESC LIMIT %(limit)s

-- name: holders
-- Live segments of raw rows with a row in the range that may hold rows of objects that ended until `born`, or with it if
-- `exact`. One that was never merged holds rows of the objects of its own commit.
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND collector = %(collector)s AND signal = %(signal)s
  AND frequency_ms = 0 AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
  AND id <> ALL(%(without)s::uuid[])
  AND CASE WHEN level > 0 THEN NOT %(exact)s OR created_at > %(born)s
           WHEN %(exact)s THEN created_at = %(born)s
           ELSE created_at <= %(born)s END
ORDER BY ingested, id
