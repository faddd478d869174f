-- name: all
SELECT id, name FROM lrdb.organizations ORDER BY name COLLATE "C"

-- name: find
-- A matching id wins over a name that looks like one.
SELECT id, name FROM lrdb.organizations WHERE id = %(id)s::uuid OR name = %(name)s
ORDER BY (id = %(id)s::uuid) DESC NULLS LAST LIMIT 1

-- name: create
INSERT INTO lrdb.organizations (id, name) VALUES (%(id)s, %(name)s) ON CONFLICT DO NOTHING

-- name: share
SELECT queries_per_second, concurrent_queries FROM lrdb.organizations WHERE id = %(id)s

-- name: limit
UPDATE lrdb.organizations
SET queries_per_second = %(queries_per_second)s, concurrent_queries = %(concurrent_queries)s
WHERE id = %(id)s

-- name: stream_rules
SELECT stream_rules FROM lrdb.organizations WHERE id = %(id)s

-- name: lock_stream_rules
SELECT stream_rules FROM lrdb.organizations WHERE id = %(id)s FOR NO KEY UPDATE

-- name: set_stream_rules
UPDATE lrdb.organizations SET stream_rules = %(rules)s::jsonb WHERE id = %(id)s
