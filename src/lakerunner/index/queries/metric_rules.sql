-- name: lock
-- One change of an organization's rules at a time. Commits of segments, which refer to the organization, do not wait.
SELECT id FROM lrdb.organizations WHERE id = %(organization)s FOR NO KEY UPDATE

-- name: current
SELECT id, organization, version, definition, coalesce(paused, ''), since_ns FROM lrdb.metric_rules
WHERE organization = %(organization)s AND ended_at IS NULL ORDER BY name COLLATE "C"

-- name: find
SELECT id, organization, version, definition, coalesce(paused, ''), since_ns FROM lrdb.metric_rules
WHERE organization = %(organization)s AND name = %(name)s AND ended_at IS NULL

-- name: active
SELECT id, organization, version, definition, '', since_ns FROM lrdb.metric_rules
WHERE organization = %(organization)s AND ended_at IS NULL AND paused IS NULL
  AND definition ->> 'signal' = %(signal)s AND (definition ->> 'enabled')::boolean
ORDER BY id

-- name: add
-- Numbers of versions go on where a dropped rule of this name ended: its points have a collector of that number. The
-- version that this one replaces has ended in the same transaction, and so at the same time: its history is taken over.
INSERT INTO lrdb.metric_rules (organization, name, version, definition, since_ns)
SELECT %(organization)s, %(name)s, coalesce(max(version), 0) + 1, %(definition)s::jsonb,
       max(since_ns) FILTER (WHERE ended_at = now())
FROM lrdb.metric_rules WHERE organization = %(organization)s AND name = %(name)s

-- name: redefine
-- A rule is paused for its number of series: with another limit it goes on.
UPDATE lrdb.metric_rules
SET definition = %(definition)s::jsonb,
    paused = CASE WHEN definition -> 'max_series' = %(definition)s::jsonb -> 'max_series' THEN paused END
WHERE organization = %(organization)s AND name = %(name)s AND ended_at IS NULL

-- name: end
UPDATE lrdb.metric_rules SET ended_at = now()
WHERE organization = %(organization)s AND name = ANY(%(names)s::text[]) AND ended_at IS NULL

-- name: renew
-- Ends versions, and begins new ones of the same rules: those with these ids, and those over this signal.
WITH ended AS (
    UPDATE lrdb.metric_rules SET ended_at = now()
    WHERE organization = %(organization)s AND ended_at IS NULL
      AND (id = ANY(%(ids)s::bigint[]) OR definition ->> 'signal' = %(signal)s)
    RETURNING organization, name, version, definition, since_ns
)
INSERT INTO lrdb.metric_rules (organization, name, version, definition, since_ns)
SELECT organization, name, version + 1, definition, since_ns FROM ended
RETURNING id, organization, version, definition, '', since_ns

-- name: enable
UPDATE lrdb.metric_rules
SET definition = jsonb_set(definition, '{enabled}', to_jsonb(%(enabled)s)),
    paused = CASE WHEN %(enabled)s THEN NULL ELSE paused END
WHERE organization = %(organization)s AND name = %(name)s AND ended_at IS NULL

-- name: pause
-- The first reason stays. A version that has ended meanwhile needs no pause.
UPDATE lrdb.metric_rules SET paused = %(reason)s WHERE id = %(id)s AND ended_at IS NULL AND paused IS NULL

-- name: resume
UPDATE lrdb.metric_rules SET paused = NULL WHERE id = %(id)s AND ended_at IS NULL

-- name: set_since
UPDATE lrdb.metric_rules SET since_ns = %(since_ns)s
WHERE organization = %(organization)s AND name = %(name)s AND ended_at IS NULL

-- name: native_by_fingerprint
-- The fingerprints of a segment of a sender that holds one of these metrics. All such segments are found before one is
-- taken: the planner would read segment after segment to find a first one.
WITH holding AS MATERIALIZED (
    SELECT id FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = 'metrics' AND state = 'live'
      AND NOT starts_with(collector, %(rule_prefix)s) AND fingerprints && %(fingerprints)s::bigint[]
)
SELECT fingerprints FROM lrdb.segments WHERE id = (SELECT id FROM holding LIMIT 1)

-- name: native_by_statistics
-- The first hundred names of the metrics of a segment whose list of fingerprints is incomplete, if one of these is
-- among them. A quote inside a name has a backslash before it.
WITH incomplete AS MATERIALIZED (
    SELECT statistics -> 'metrics' AS metrics FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = 'metrics' AND state = 'live'
      AND NOT starts_with(collector, %(rule_prefix)s) AND fingerprints && ARRAY[%(incomplete)s::bigint]
)
SELECT metrics FROM incomplete WHERE metrics::text ~ %(pattern)s LIMIT 1

-- name: retire
-- The points of versions that have ended, where a current one covers stored segments and makes the same metric.
UPDATE lrdb.segments AS s SET state = 'replaced', replaced_at = now()
FROM lrdb.metric_rules AS ended JOIN lrdb.metric_rules AS made_now
  ON made_now.organization = ended.organization AND made_now.definition ->> 'metric' = ended.definition ->> 'metric'
WHERE ended.organization = %(organization)s AND ended.ended_at IS NOT NULL
  AND made_now.ended_at IS NULL AND made_now.since_ns IS NOT NULL
  AND s.organization = ended.organization AND s.signal = 'metrics' AND s.state = 'live'
  AND s.collector = %(rule_prefix)s || ended.name || '.' || ended.version
