-- Which stored segments rules do not cover yet (docs/formats/backfill_of_rules.md).

-- name: uncovered
-- Live segments that lack a version which wants them, newest hour first. Those that are set aside cannot be read.
WITH wanted AS (
    SELECT id, organization, definition ->> 'signal' AS signal, since_ns FROM lrdb.metric_rules
    WHERE ended_at IS NULL AND paused IS NULL AND since_ns IS NOT NULL
      AND definition ->> 'signal' = ANY(%(signals)s::text[]) AND (definition ->> 'enabled')::boolean
)
SELECT s.id, organization, collector, signal, start_ns, end_ns, rows, bytes, sort_version, frequency_ms, level,
       statistics, '{}'::bigint[] AS fingerprints, ingested, rolled, rule_set, column_set
FROM lrdb.segments AS s LEFT JOIN lrdb.rule_sets AS r ON r.id = s.rule_set
WHERE state = 'live' AND aside IS NULL AND frequency_ms = 0 AND s.id <> ALL(%(without)s::uuid[])
  AND organization IN (SELECT organization FROM wanted) AND signal = ANY(%(signals)s::text[])
  AND EXISTS (
      SELECT FROM wanted AS w
      WHERE w.organization = s.organization AND w.signal = s.signal AND w.since_ns < s.end_ns
        AND w.id <> ALL(coalesce(r.rules, '{}')))
ORDER BY start_ns / %(hour_ns)s DESC, ingested DESC, s.id LIMIT %(limit)s

-- name: coverage
-- Of each rule that covers history: live segments and rows from then on, and how many of them it covers.
SELECT m.id, count(s.id), coalesce(sum(s.rows), 0)::bigint, coalesce(sum(s.bytes), 0)::bigint,
       count(s.id) FILTER (WHERE m.id = ANY(r.rules)),
       coalesce(sum(s.rows) FILTER (WHERE m.id = ANY(r.rules)), 0)::bigint,
       count(s.id) FILTER (WHERE s.aside IS NOT NULL AND m.id <> ALL(coalesce(r.rules, '{}')))
FROM lrdb.metric_rules AS m
LEFT JOIN lrdb.segments AS s
  ON s.organization = m.organization AND s.signal = m.definition ->> 'signal' AND s.frequency_ms = 0
  AND s.state = 'live' AND s.end_ns > m.since_ns
LEFT JOIN lrdb.rule_sets AS r ON r.id = s.rule_set
WHERE m.organization = %(organization)s AND m.ended_at IS NULL AND m.since_ns IS NOT NULL
GROUP BY m.id

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
