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

-- name: native_metrics
-- Which of these metrics senders have sent. A segment whose list of fingerprints is incomplete shows in its statistics
-- the first hundred names of its metrics; a quote inside such a name has a backslash before it.
SELECT name FROM unnest(%(names)s::text[], %(fingerprints)s::bigint[]) AS wanted (name, fingerprint)
WHERE EXISTS (
    SELECT FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = 'metrics' AND state = 'live'
      AND NOT starts_with(collector, %(rule_prefix)s) AND fingerprints && ARRAY[wanted.fingerprint])
OR EXISTS (
    SELECT FROM lrdb.segments
    WHERE organization = %(organization)s AND signal = 'metrics' AND state = 'live'
      AND NOT starts_with(collector, %(rule_prefix)s) AND fingerprints && ARRAY[%(incomplete)s::bigint]
      AND statistics ->> 'metrics' ~ ('(^|[^\\])"' || wanted.name || '"'))
ORDER BY name
