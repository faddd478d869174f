-- name: insert_column_sets
INSERT INTO lrdb.column_sets (id, columns)
SELECT id, columns::json FROM unnest(%(ids)s::bigint[], %(columns)s::text[]) AS a (id, columns) ORDER BY id
ON CONFLICT (id) DO NOTHING

-- name: insert_rule_sets
INSERT INTO lrdb.rule_sets (id, rules)
SELECT id, rules::bigint[] FROM unnest(%(ids)s::bigint[], %(rules)s::text[]) AS a (id, rules) ORDER BY id
ON CONFLICT (id) DO NOTHING

-- name: insert
INSERT INTO lrdb.segments
    (id, organization, collector, signal, start_ns, end_ns, frequency_ms, level, sort_version, rows, bytes,
     column_set, statistics, fingerprints, ingested, rolled, rule_set, inputs)
VALUES
    (%(id)s, %(organization)s, %(collector)s, %(signal)s, %(start_ns)s, %(end_ns)s, %(frequency_ms)s, %(level)s,
     %(sort_version)s, %(rows)s, %(bytes)s, %(column_set)s, %(statistics)s::json, %(fingerprints)s::bigint[],
     coalesce(nullif(%(ingested)s::bigint, 0), nextval('lrdb.segments_ingested')), %(rolled)s,
     %(rule_set)s::bigint, %(inputs)s::uuid[])
ON CONFLICT (id) DO NOTHING

-- name: replace
WITH replaced AS (
    SELECT id FROM lrdb.segments
    WHERE id = ANY(%(ids)s::uuid[]) AND organization = %(organization)s AND state = 'live'
    ORDER BY id FOR UPDATE
)
UPDATE lrdb.segments AS s SET state = 'replaced', replaced_at = now() FROM replaced AS r WHERE s.id = r.id

-- name: roll
-- Their rows are in the buckets of the next tier.
WITH rolled AS (
    SELECT id FROM lrdb.segments
    WHERE id = ANY(%(ids)s::uuid[]) AND organization = %(organization)s AND state = 'live'
    ORDER BY id FOR UPDATE
)
UPDATE lrdb.segments AS s SET rolled = true FROM rolled AS r WHERE s.id = r.id

-- name: keep_birth
-- Repaired segments get the creation time of those whose rows they have: their raw objects are found by it.
UPDATE lrdb.segments
SET created_at = (SELECT min(created_at) FROM lrdb.segments WHERE id = ANY(%(lost)s::uuid[]))
WHERE id = ANY(%(ids)s::uuid[])

-- name: lock_tier
-- One commit of buckets of a collector's tier at a time: each sees what the one before it was made of.
SELECT pg_advisory_xact_lock(hashtextextended(%(tier)s, 7))

-- name: rolled_ids
-- Segments of one collector's tier with a row in the range that are rolled up into the next tier.
SELECT id FROM lrdb.segments
WHERE organization = %(organization)s AND collector = %(collector)s AND signal = %(signal)s
  AND frequency_ms = %(frequency_ms)s AND state = 'live' AND rolled AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s

-- name: between
-- Whether another segment lies between these. One with the position of the first is the other part of a merge that was
-- cut: it has no sort key in common with it, and stays before the others.
WITH hull AS (
    SELECT min(collector) AS collector, min(signal) AS signal, min(frequency_ms) AS frequency_ms,
           min(start_ns) AS start_ns, max(end_ns) AS end_ns, min(ingested) AS first, max(ingested) AS last
    FROM lrdb.segments WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[])
)
SELECT s.id FROM lrdb.segments AS s, hull AS h
WHERE s.organization = %(organization)s AND s.collector = h.collector AND s.signal = h.signal
  AND s.frequency_ms = h.frequency_ms AND s.state = 'live' AND s.start_ns < h.end_ns AND s.end_ns > h.start_ns
  AND s.ingested > h.first AND s.ingested <= h.last AND s.id <> ALL(%(ids)s::uuid[])
LIMIT 1

-- name: pick
-- Both are half-open: a segment that ends where the range starts holds nothing of it. The condition is repeated,
-- once for each of the two indexes over time. Up to when rows have expired is in every row, and in one without a
-- segment if there is none: one statement is one moment.
WITH expired AS (
    SELECT json_object_agg(frequency_ms, before_ns) AS before_ns FROM (
        SELECT frequency_ms, max(before_ns) AS before_ns FROM lrdb.expired
        WHERE organization = %(organization)s AND signal = %(signal)s GROUP BY frequency_ms) AS of_all
), picked AS (
    SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
           statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
    FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = %(frequency_ms)s
      AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
      AND int8range(start_ns, end_ns) && int8range(%(start_ns)s, %(end_ns)s)
)
SELECT before_ns, 0, picked.* FROM expired LEFT JOIN picked ON true ORDER BY start_ns, id

-- name: pick_pruned
-- Like pick, for segments with a fingerprint of each wanted group. The count is of all that pick would return: it is in
-- every row, and in one without a segment if none is left.
WITH expired AS (
    SELECT json_object_agg(frequency_ms, before_ns) AS before_ns FROM (
        SELECT frequency_ms, max(before_ns) AS before_ns FROM lrdb.expired
        WHERE organization = %(organization)s AND signal = %(signal)s GROUP BY frequency_ms) AS of_all
), overlapping AS (
    SELECT count(*) AS considered FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = %(frequency_ms)s
      AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
      AND int8range(start_ns, end_ns) && int8range(%(start_ns)s, %(end_ns)s)
), wanted AS (
    SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
           statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
    FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = %(frequency_ms)s
      AND state = 'live' AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
      AND int8range(start_ns, end_ns) && int8range(%(start_ns)s, %(end_ns)s)
      AND fingerprints && %(wanted_1)s::bigint[]
      AND (%(wanted_2)s::bigint[] IS NULL OR fingerprints && %(wanted_2)s::bigint[])
      AND (%(wanted_3)s::bigint[] IS NULL OR fingerprints && %(wanted_3)s::bigint[])
      AND (%(wanted_4)s::bigint[] IS NULL OR fingerprints && %(wanted_4)s::bigint[])
)
SELECT before_ns, considered, wanted.*
FROM expired CROSS JOIN overlapping LEFT JOIN wanted ON true ORDER BY start_ns, id

-- name: one_snapshot
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: unrolled
-- Segments with a row in the range, or in a bucket that it begins or ends in, that are not in the next tier's buckets;
-- and the times of such segments that have expired.
SELECT frequency_ms, start_ns, end_ns, true AS live FROM lrdb.segments
WHERE organization = %(organization)s AND signal = 'metrics' AND frequency_ms = ANY(%(frequencies)s::integer[])
  AND state = 'live' AND NOT rolled AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
  AND (%(wanted_1)s::bigint[] IS NULL OR fingerprints && %(wanted_1)s::bigint[])
  AND (%(wanted_2)s::bigint[] IS NULL OR fingerprints && %(wanted_2)s::bigint[])
  AND (%(wanted_3)s::bigint[] IS NULL OR fingerprints && %(wanted_3)s::bigint[])
  AND (%(wanted_4)s::bigint[] IS NULL OR fingerprints && %(wanted_4)s::bigint[])
UNION ALL
SELECT frequency_ms, start_ns, end_ns, false FROM lrdb.expired_unrolled
WHERE organization = %(organization)s AND frequency_ms = ANY(%(frequencies)s::integer[])
  AND start_ns < %(end_ns)s AND end_ns > %(start_ns)s
  AND (%(wanted_1)s::bigint[] IS NULL OR fingerprints && %(wanted_1)s::bigint[])
  AND (%(wanted_2)s::bigint[] IS NULL OR fingerprints && %(wanted_2)s::bigint[])
  AND (%(wanted_3)s::bigint[] IS NULL OR fingerprints && %(wanted_3)s::bigint[])
  AND (%(wanted_4)s::bigint[] IS NULL OR fingerprints && %(wanted_4)s::bigint[])

-- name: expired
-- Up to when rows, of any collector, and buckets of each tier have expired.
SELECT frequency_ms, max(before_ns) FROM lrdb.expired
WHERE organization = %(organization)s AND signal = %(signal)s GROUP BY frequency_ms

-- name: left
-- The tiers with buckets at these times.
SELECT DISTINCT s.frequency_ms
FROM unnest(%(starts)s::bigint[], %(ends)s::bigint[]) AS gone (start_ns, end_ns)
JOIN lrdb.segments AS s
  ON s.start_ns < gone.end_ns AND s.end_ns > gone.start_ns
  AND int8range(s.start_ns, s.end_ns) && int8range(gone.start_ns, gone.end_ns)
WHERE organization = %(organization)s AND signal = %(signal)s AND state = 'live' AND s.frequency_ms > 0
  AND (%(wanted_1)s::bigint[] IS NULL OR fingerprints && %(wanted_1)s::bigint[])
  AND (%(wanted_2)s::bigint[] IS NULL OR fingerprints && %(wanted_2)s::bigint[])
  AND (%(wanted_3)s::bigint[] IS NULL OR fingerprints && %(wanted_3)s::bigint[])
  AND (%(wanted_4)s::bigint[] IS NULL OR fingerprints && %(wanted_4)s::bigint[])
ORDER BY s.frequency_ms

-- name: pick_tiles
-- Like pick_pruned, for several frequencies, each at its own times. A segment is returned once for each of these.
SELECT id, organization, collector, signal, s.start_ns, s.end_ns, rows, bytes, sort_version, s.frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM unnest(%(frequencies)s::integer[], %(starts)s::bigint[], %(ends)s::bigint[]) AS tile (frequency_ms, start_ns, end_ns)
JOIN lrdb.segments AS s
  ON s.frequency_ms = tile.frequency_ms AND s.start_ns < tile.end_ns AND s.end_ns > tile.start_ns
  AND int8range(s.start_ns, s.end_ns) && int8range(tile.start_ns, tile.end_ns)
WHERE organization = %(organization)s AND signal = %(signal)s AND state = 'live'
  AND (%(wanted_1)s::bigint[] IS NULL OR fingerprints && %(wanted_1)s::bigint[])
  AND (%(wanted_2)s::bigint[] IS NULL OR fingerprints && %(wanted_2)s::bigint[])
  AND (%(wanted_3)s::bigint[] IS NULL OR fingerprints && %(wanted_3)s::bigint[])
  AND (%(wanted_4)s::bigint[] IS NULL OR fingerprints && %(wanted_4)s::bigint[])
ORDER BY s.start_ns, id

-- name: count_tiles
SELECT count(DISTINCT id)
FROM unnest(%(frequencies)s::integer[], %(starts)s::bigint[], %(ends)s::bigint[]) AS tile (frequency_ms, start_ns, end_ns)
JOIN lrdb.segments AS s
  ON s.frequency_ms = tile.frequency_ms AND s.start_ns < tile.end_ns AND s.end_ns > tile.start_ns
  AND int8range(s.start_ns, s.end_ns) && int8range(tile.start_ns, tile.end_ns)
WHERE organization = %(organization)s AND signal = %(signal)s AND state = 'live'

-- name: get
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[])
ORDER BY start_ns, id

-- name: column_sets
SELECT id, columns FROM lrdb.column_sets WHERE id = ANY(%(ids)s::bigint[])

-- name: rule_sets
SELECT id, rules FROM lrdb.rule_sets WHERE id = ANY(%(ids)s::bigint[])

-- name: totals
SELECT count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM lrdb.segments
WHERE organization = %(organization)s AND state = 'live'

-- name: given_out
-- The last number that a commit took for a segment, whether or not it has ended.
SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM lrdb.segments_ingested

-- name: in_flight
-- All writing transactions before the first number have ended; all that run now are before the second one, which is our
-- own (a snapshot's xmax would be one past the last that has ended).
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint

-- name: committed
SELECT id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments
WHERE ingested > %(after)s AND organization = ANY(%(organizations)s::uuid[])
  AND signal = 'logs' AND frequency_ms = 0 AND level = 0
ORDER BY ingested, id

-- name: committed_ids
SELECT id FROM lrdb.segments
WHERE ingested > %(after)s AND organization = %(organization)s
  AND signal = 'logs' AND frequency_ms = 0 AND level = 0
