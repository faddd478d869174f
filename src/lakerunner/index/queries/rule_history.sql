-- Which stored segments rules do not cover yet (docs/formats/backfill_of_rules.md).

-- name: uncovered
-- Live segments that lack a version which wants them, newest hour first. Those that are set aside cannot be read. Sets
-- and versions are compared once for each set that is in use, not for each segment; no set has the number 0.
WITH wanted AS (
    SELECT id, organization, definition ->> 'signal' AS signal, since_ns FROM lrdb.metric_rules
    WHERE ended_at IS NULL AND paused IS NULL AND since_ns IS NOT NULL
      AND definition ->> 'signal' = ANY(%(signals)s::text[]) AND (definition ->> 'enabled')::boolean
), used AS (
    SELECT DISTINCT organization, signal, rule_set FROM lrdb.segments
    WHERE state = 'live' AND frequency_ms = 0 AND (organization, signal) IN (SELECT organization, signal FROM wanted)
), lacking AS MATERIALIZED (
    SELECT u.organization, u.signal, coalesce(u.rule_set, 0) AS rule_set, min(w.since_ns) AS since_ns
    FROM used AS u JOIN wanted AS w USING (organization, signal) LEFT JOIN lrdb.rule_sets AS r ON r.id = u.rule_set
    WHERE w.id <> ALL(coalesce(r.rules, '{}'))
    GROUP BY u.organization, u.signal, u.rule_set
)
SELECT s.id, s.organization, s.collector, s.signal, s.start_ns, s.end_ns, s.rows, s.bytes, s.sort_version,
       s.frequency_ms, s.level, s.statistics, '{}'::bigint[] AS fingerprints, s.ingested, s.rolled, s.rule_set,
       s.column_set
FROM lacking AS l JOIN lrdb.segments AS s
  ON s.organization = l.organization AND s.signal = l.signal AND coalesce(s.rule_set, 0) = l.rule_set
WHERE s.state = 'live' AND s.aside IS NULL AND s.frequency_ms = 0 AND s.end_ns > l.since_ns
  AND s.id <> ALL(%(without)s::uuid[])
ORDER BY s.start_ns / %(hour_ns)s DESC, s.ingested DESC, s.id LIMIT %(limit)s

-- name: coverage
-- Of each rule that covers history: live segments and rows from then on, and how many of them it covers. Segments are
-- counted once for all rules: by rule set, and by how many of the rules' times they do not end before.
WITH wanted AS (
    SELECT id, definition ->> 'signal' AS signal, since_ns FROM lrdb.metric_rules
    WHERE organization = %(organization)s AND ended_at IS NULL AND since_ns IS NOT NULL
), times AS (
    SELECT array_agg(DISTINCT since_ns ORDER BY since_ns) AS sorted FROM wanted
), counted AS (
    SELECT signal, rule_set, width_bucket(end_ns - 1, sorted) AS times, aside IS NOT NULL AS is_aside,
           count(*) AS segments, sum(rows) AS rows, sum(bytes) AS bytes
    FROM lrdb.segments, times
    WHERE organization = %(organization)s AND state = 'live' AND frequency_ms = 0 AND end_ns > sorted[1]
      AND signal IN (SELECT signal FROM wanted)
    GROUP BY 1, 2, 3, 4
), compared AS (
    SELECT w.id, c.*, coalesce(w.id = ANY(r.rules), false) AS is_covered
    FROM wanted AS w CROSS JOIN times AS t
    LEFT JOIN counted AS c ON c.signal = w.signal AND c.times >= width_bucket(w.since_ns, t.sorted)
    LEFT JOIN lrdb.rule_sets AS r ON r.id = c.rule_set
)
SELECT id, coalesce(sum(segments), 0)::bigint, coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
       coalesce(sum(segments) FILTER (WHERE is_covered), 0)::bigint,
       coalesce(sum(rows) FILTER (WHERE is_covered), 0)::bigint,
       coalesce(sum(segments) FILTER (WHERE is_aside AND NOT is_covered), 0)::bigint
FROM compared GROUP BY id

-- name: left_by_day
SELECT start_ns / %(day_ns)s AS day, count(*), sum(rows)::bigint, sum(bytes)::bigint
FROM lrdb.segments AS s LEFT JOIN lrdb.rule_sets AS r ON r.id = s.rule_set
WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = 0 AND state = 'live'
  AND aside IS NULL AND end_ns > %(since_ns)s AND %(version)s <> ALL(coalesce(r.rules, '{}'))
GROUP BY day ORDER BY day DESC

-- name: newest_left
SELECT s.id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments AS s LEFT JOIN lrdb.rule_sets AS r ON r.id = s.rule_set
WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = 0 AND state = 'live'
  AND aside IS NULL AND end_ns > %(since_ns)s AND %(version)s <> ALL(coalesce(r.rules, '{}'))
ORDER BY start_ns DESC, s.id LIMIT %(limit)s

-- name: lock_versions
-- While a commit runs, its versions cannot end.
SELECT id FROM lrdb.metric_rules
WHERE organization = %(organization)s AND id = ANY(%(ids)s::bigint[]) AND ended_at IS NULL ORDER BY id FOR SHARE

-- name: lock_segments
SELECT id, rule_set FROM lrdb.segments
WHERE organization = %(organization)s AND id = ANY(%(ids)s::uuid[]) AND state = 'live' ORDER BY id FOR UPDATE

-- name: grow
UPDATE lrdb.segments SET rule_set = %(rule_set)s WHERE id = %(id)s
