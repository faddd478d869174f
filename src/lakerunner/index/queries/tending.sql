-- The queries of merges and rollups (docs/formats/tending.md).

-- name: live
-- Those of these that are still to be worked on.
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND state = 'live' AND aside IS NULL
ORDER BY ingested, id

-- name: overlapping
-- All live segments of one collector's tier in the time range and in the range of `ingested`.
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND collector = %(collector)s AND signal = %(signal)s
  AND frequency_ms = %(frequency_ms)s AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
  AND (%(first)s::bigint IS NULL OR ingested BETWEEN %(first)s AND %(last)s)
ORDER BY ingested, id

-- name: aside_ids
SELECT id FROM lrdb.segments
WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND aside IS NOT NULL

-- name: set_aside
UPDATE lrdb.segments SET aside = %(reason)s
WHERE id IN (
    SELECT id FROM lrdb.segments
    WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND state = 'live'
    ORDER BY id FOR UPDATE)

-- name: aside
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE state = 'live' AND aside IS NOT NULL AND organization = %(organization)s
ORDER BY start_ns, id LIMIT %(limit)s

-- name: aside_reasons
SELECT id, aside FROM lrdb.segments
WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND aside IS NOT NULL

-- name: take_back
UPDATE lrdb.segments SET aside = NULL
WHERE id IN (
    SELECT id FROM lrdb.segments
    WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND aside IS NOT NULL
    ORDER BY id FOR UPDATE)

-- name: fail
INSERT INTO lrdb.failed_work AS f (topic, digest, payload, organization, attempts, reason, state, next_at)
VALUES (%(topic)s, %(digest)s, %(payload)s, %(organization)s, 1, %(reason)s,
        CASE WHEN %(max_attempts)s <= 1 THEN 'aside' ELSE 'waiting' END, now() + make_interval(secs => %(pause)s))
ON CONFLICT (topic, digest) DO UPDATE
SET attempts = f.attempts + 1, reason = EXCLUDED.reason,
    state = CASE WHEN f.attempts + 1 >= %(max_attempts)s THEN 'aside' ELSE 'waiting' END,
    next_at = now() + make_interval(secs => least(%(pause)s * 2 ^ least(f.attempts, 30), %(longest)s))
RETURNING attempts, state

-- name: due
-- The taker has this lease to finish it before another process tries.
WITH due AS (
    SELECT topic, digest FROM lrdb.failed_work
    WHERE state = 'waiting' AND topic = ANY(%(topics)s::text[]) AND next_at <= now()
    ORDER BY next_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE lrdb.failed_work AS f SET next_at = now() + make_interval(secs => %(lease)s)
FROM due WHERE f.topic = due.topic AND f.digest = due.digest
RETURNING f.topic, f.payload

-- name: put_off
UPDATE lrdb.failed_work SET next_at = now() + make_interval(secs => %(seconds)s)
WHERE topic = %(topic)s AND digest = %(digest)s AND state = 'waiting'

-- name: done
DELETE FROM lrdb.failed_work WHERE topic = %(topic)s AND digest = %(digest)s

-- name: list
SELECT topic, payload, organization, attempts, reason, state, first_at, next_at FROM lrdb.failed_work
WHERE organization = %(organization)s ORDER BY first_at DESC, digest LIMIT %(limit)s

-- name: requeue
WITH again AS (
    DELETE FROM lrdb.failed_work AS f
    USING unnest(%(topics)s::text[], %(digests)s::bytea[]) AS a (topic, digest)
    WHERE f.organization = %(organization)s AND f.topic = a.topic AND f.digest = a.digest
    RETURNING f.topic, f.payload
)
INSERT INTO lrdb.outbox (topic, payload) SELECT topic, payload FROM again

-- name: to_merge
-- Groups of segments that should have been merged long ago, in random order: some may never be mergeable, and must not
-- hide others.
WITH small AS (
    SELECT id, organization, collector, signal, frequency_ms, sort_version,
           floor(start_ns::numeric / %(period_ns)s) AS period
    FROM lrdb.segments
    WHERE state = 'live' AND aside IS NULL AND level <= %(level)s AND bytes < %(target_bytes)s
      AND (signal <> 'metrics' OR rolled OR frequency_ms = %(last_tier)s)
      AND created_at < now() - make_interval(secs => %(seconds)s)
), groups AS (
    SELECT organization, collector, signal, frequency_ms, sort_version, period, array_agg(id) AS ids FROM small
    GROUP BY organization, collector, signal, frequency_ms, sort_version, period HAVING count(*) > 1
    ORDER BY random() LIMIT %(limit)s
)
SELECT s.id, s.organization, s.collector, s.signal, s.start_ns, s.end_ns, s.rows, s.bytes, s.sort_version,
       s.frequency_ms, s.level, s.statistics, '{}'::bigint[] AS fingerprints, s.ingested, s.rolled, s.rule_set, s.column_set
FROM groups AS g CROSS JOIN unnest(g.ids) AS of_group (id) JOIN lrdb.segments AS s ON s.id = of_group.id
ORDER BY s.organization, s.collector, s.signal, s.frequency_ms, s.ingested LIMIT %(most)s

-- name: to_roll
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE state = 'live' AND signal = 'metrics' AND NOT rolled AND aside IS NULL AND frequency_ms = %(frequency_ms)s
  AND created_at < now() - make_interval(secs => %(seconds)s)
ORDER BY created_at LIMIT %(most)s

-- name: per_hour
-- How many live segments an hour has on average, of hours that have rows.
SELECT signal, frequency_ms, level, count(*)::float8 / count(DISTINCT start_ns / %(hour_ns)s)
FROM lrdb.segments
WHERE state = 'live' AND start_ns >= %(start_ns)s AND start_ns < %(end_ns)s
GROUP BY signal, frequency_ms, level

-- name: unrolled_seconds
SELECT frequency_ms, extract(epoch FROM now() - min(created_at))::float8 FROM lrdb.segments
WHERE state = 'live' AND signal = 'metrics' AND NOT rolled AND frequency_ms < %(last_tier)s
GROUP BY frequency_ms

-- name: failed_counts
SELECT topic, state, count(*) FROM lrdb.failed_work GROUP BY topic, state
