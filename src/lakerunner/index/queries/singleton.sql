-- name: introduce
SELECT set_config('application_name', %(holder)s, false)

-- name: take
SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 7))

-- name: holder
SELECT a.application_name, 'from ' || host(a.client_addr), 'since ' || to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SSOF')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(%(name)s, 7)
