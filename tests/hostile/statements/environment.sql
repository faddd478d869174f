-- Substitution of variables: no `${...}` is ever replaced, wherever it stands; what is text stays that text.

-- engine: both
-- expect: rows
SELECT '${env:HOSTILE_CANARY}' AS x

-- engine: both
-- expect: rows
SELECT '${env:LAKERUNNER_WORKER_KEY}' AS x

-- engine: both
-- expect: rows
SELECT '${system:user.dir}' AS x, '${system:user.home}' AS y, '${system:java.class.path}' AS z

-- engine: both
-- expect: rows
SELECT '${spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${spark:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${sparkconf:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${hiveconf:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${hivevar:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${spark.hostile.canary:-x}' AS x, '${spark.master}' AS y, '${spark.app.id}' AS z

-- engine: both
-- never: local[
SELECT '${spark.master}' AS x

-- engine: both
-- parameters: ["${env:HOSTILE_CANARY}"]
-- expect: rows
SELECT $1 AS x

-- engine: both
-- parameters: {"a": "${spark.hostile.canary}"}
-- expect: rows
SELECT $a AS x, count(*) FROM logs WHERE message <> $a

-- engine: both
-- parameters: {"a": ["${env:HOSTILE_CANARY}", "${system:user.dir}"]}
SELECT service_name FROM logs WHERE service_name IN $a

-- engine: both
SELECT 1 AS "${env:HOSTILE_CANARY}"

-- engine: both
SELECT "${env:HOSTILE_CANARY}" FROM logs

-- engine: both
SELECT attributes['${env:HOSTILE_CANARY}'] FROM logs

-- engine: both
SELECT 1 AS x -- ${env:HOSTILE_CANARY}

-- engine: both
SELECT 1 AS x /* ${env:HOSTILE_CANARY} ${spark.hostile.canary} */

-- engine: both
SELECT ${env:HOSTILE_CANARY}

-- engine: both
SELECT * FROM ${spark.hostile.canary}

-- engine: both
WITH "${env:HOSTILE_CANARY}" AS (SELECT 1 AS x) SELECT * FROM "${env:HOSTILE_CANARY}"

-- engine: both
-- expect: rows
SELECT '$' || '{env:HOSTILE_CANARY}' AS x

-- engine: both
-- expect: rows
SELECT '${env:${env:HOSTILE_CANARY}}' AS x

SELECT '${env:PATH}${env:HOME}${env:USER}' AS x

SELECT '${' || repeat('a', 3) AS x

SELECT '%{env:HOSTILE_CANARY}', '$(env HOSTILE_CANARY)', '`env`', '{{a_organization}}' AS x

SELECT '$HOSTILE_CANARY', '%HOSTILE_CANARY%', '${HOSTILE_CANARY}' AS x

SELECT format('{}', '${env:HOSTILE_CANARY}')

SELECT printf('%s', '${env:HOSTILE_CANARY}')

SELECT regexp_replace(message, 'x', '${env:HOSTILE_CANARY}') FROM logs

SELECT regexp_replace(message, '(.*)', '\1${1}$1') FROM logs

SELECT message FROM logs WHERE message LIKE '${env:HOSTILE_CANARY}%'

SELECT message FROM logs WHERE message ~ '${env:HOSTILE_CANARY}'

SELECT message FROM logs WHERE search('${env:HOSTILE_CANARY}')

SELECT strftime(timestamp, '${env:HOSTILE_CANARY}') FROM logs

SELECT json_extract('{"a": "${env:HOSTILE_CANARY}"}', '$.a')

SELECT json_extract('{"${env:HOSTILE_CANARY}": 1}', '$."${env:HOSTILE_CANARY}"')

SELECT '#{T(java.lang.Runtime).getRuntime()}', '${jndi:ldap://127.0.0.1/x}', '<%= 1 %>' AS x

SELECT '{{home}}' AS x

-- expect: any
EXPLAIN SELECT '${env:HOSTILE_CANARY}', '${spark.hostile.canary}' FROM logs

-- expect: any
EXPLAIN ANALYZE SELECT count(*), '${env:HOSTILE_CANARY}' FROM logs WHERE message <> '${system:user.dir}'

-- The same where Spark SQL runs the whole query: set operations, joins.

-- engine: both
-- expect: rows
SELECT '${env:HOSTILE_CANARY}' AS x FROM logs UNION SELECT '${env:HOSTILE_CANARY}' AS x

-- engine: both
-- expect: rows
SELECT '${env:LAKERUNNER_WORKER_KEY}' AS x FROM logs UNION SELECT '${env:LAKERUNNER_WORKER_KEY}' AS x

-- engine: both
-- expect: rows
SELECT '${system:user.home}' AS x FROM logs UNION SELECT '${system:user.home}' AS x

-- engine: both
-- expect: rows
SELECT '${spark.hostile.canary}' AS x FROM logs UNION SELECT '${spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${sparkconf:spark.hostile.canary}' AS x FROM logs UNION SELECT '${sparkconf:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${hiveconf:spark.hostile.canary}' AS x FROM logs UNION SELECT '${hiveconf:spark.hostile.canary}' AS x

-- engine: both
-- expect: rows
SELECT '${env:${env:HOSTILE_CANARY}}' AS x FROM logs UNION SELECT '${env:${env:HOSTILE_CANARY}}' AS x

-- engine: both
-- expect: rows
SELECT count(*) AS x FROM logs a JOIN logs b ON a.timestamp = b.timestamp WHERE a.message <> '${env:HOSTILE_CANARY}'
