-- Files, networks, extensions, the catalog: the parser refuses all of it, whatever the spelling.
-- tests/lakeql/refused.txt has the plain ones, and runs too.
-- expect: refused

SELECT * FROM '{{b_segment}}'

SELECT * FROM "{{b_segment}}"

SELECT * FROM '{{home}}/store/db/{{b_organization}}/**/*.parquet'

SELECT * FROM read_parquet('{{b_segment}}')

SELECT * FROM read_parquet(['{{a_segment}}', '{{b_segment}}'])

SELECT * FROM READ_PARQUET('{{b_segment}}', union_by_name => true)

SELECT * FROM "read_parquet"('{{b_segment}}')

SELECT * FROM main.read_parquet('{{b_segment}}')

SELECT * FROM parquet_schema('{{b_segment}}')

SELECT * FROM parquet_kv_metadata('{{b_segment}}')

SELECT * FROM parquet_bloom_probe('{{b_segment}}', 'service_name', '{{b_service}}')

SELECT * FROM parquet_file_metadata('{{b_segment}}')

SELECT * FROM parquet_scan('{{b_segment}}')

SELECT * FROM read_csv('/proc/self/environ')

SELECT * FROM read_csv('/proc/self/environ', delim = '\0', header = false)

-- engine: both
SELECT * FROM read_text('/proc/self/environ')

SELECT * FROM read_text('/proc/1/environ')

SELECT * FROM read_text('/proc/self/cmdline')

SELECT * FROM read_blob('/proc/self/maps')

SELECT * FROM read_text('{{home}}/postgres/data/pg_hba.conf')

SELECT * FROM read_text('{{home}}/address')

SELECT * FROM read_text('file:///etc/passwd')

SELECT * FROM read_text('~/.ssh/id_rsa')

SELECT content FROM read_text('/etc/hostname'), logs

SELECT (SELECT content FROM read_text('/etc/hostname')) FROM logs

SELECT message FROM logs WHERE message IN (SELECT content FROM read_text('/etc/hostname'))

SELECT message FROM logs WHERE EXISTS (SELECT 1 FROM glob('{{home}}/**'))

SELECT * FROM logs l LEFT JOIN LATERAL (SELECT * FROM glob('{{home}}/*')) g ON true

-- engine: both
SELECT * FROM glob('{{home}}/store/db/*')

SELECT * FROM glob('{{home}}/**/tbl_*.parquet')

SELECT * FROM read_ndjson('/etc/passwd')

SELECT * FROM read_json_objects('/etc/passwd')

SELECT * FROM read_ndjson_objects('/etc/passwd')

SELECT * FROM read_json_auto('http://127.0.0.1:{{port}}/api/v1/keys')

SELECT * FROM read_csv('http://127.0.0.1:{{port}}/metrics')

-- engine: both
SELECT * FROM read_text('http://169.254.169.254/latest/meta-data/')

SELECT * FROM 'http://127.0.0.1:{{port}}/metrics'

SELECT * FROM 'https://example.com/x.parquet'

SELECT * FROM 's3://bucket/key.parquet'

SELECT * FROM 'gs://bucket/key.parquet'

SELECT * FROM 'az://container/key.parquet'

SELECT * FROM 'hf://datasets/x/y.csv'

SELECT * FROM 'file:{{b_segment}}'

SELECT * FROM iceberg_scan('{{home}}')

SELECT * FROM delta_scan('{{home}}')

SELECT * FROM sqlite_scan('x.db', 't')

SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 'segments')

SELECT * FROM mysql_query('x', 'SELECT 1')

SELECT * FROM st_read('/etc/passwd')

SELECT * FROM sniff_csv('/etc/passwd')

COPY (SELECT * FROM logs) TO '{{home}}/out.csv'

COPY (SELECT * FROM logs) TO '/dev/stdout'

COPY logs FROM '{{b_segment}}'

COPY (SELECT 1) TO 'http://127.0.0.1:{{port}}/v1/logs'

SELECT 1; COPY (SELECT 1) TO '/tmp/x'

ATTACH '{{home}}/x.db'

ATTACH 'host=127.0.0.1 dbname=postgres' AS p (TYPE postgres)

ATTACH ':memory:' AS m

INSTALL httpfs FROM 'http://127.0.0.1:{{port}}'

LOAD '/tmp/x.duckdb_extension'

CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')

CREATE OR REPLACE TEMP VIEW logs AS SELECT 1

CREATE TEMP MACRO f() AS 1

EXPORT DATABASE '{{home}}/dump'

IMPORT DATABASE '{{home}}'

-- engine: both
SELECT getenv('LAKERUNNER_WORKER_KEY')

SELECT getenv('AWS_SECRET_ACCESS_KEY') FROM logs

SELECT list_transform(['HOSTILE_CANARY'], lambda x: getenv(x))

SELECT [getenv(x) FOR x IN ['HOSTILE_CANARY']]

SELECT try(getenv('HOSTILE_CANARY'))

SELECT getvariable('x')

-- engine: both
SELECT current_setting('secret_directory')

SELECT current_setting('temp_directory')

SELECT current_setting('allowed_directories')

SELECT current_user, session_user

SELECT user

SELECT current_database(), current_schema()

SELECT current_schemas(true)

SELECT current_catalog

SELECT current_query()

SELECT version()

SELECT pg_backend_pid()

SELECT inet_server_addr()

SELECT txid_current()

SELECT in_search_path('a', 'b')

SELECT pg_read_file('/etc/passwd')

SELECT pg_ls_dir('/')

SELECT pg_sleep(100)

SELECT nextval('x')

SELECT currval('x')

SELECT write_log('x', level := 'error')

SELECT parse_path('/a/b'), add_parquet_key('a', 'b')

-- engine: both
SELECT * FROM duckdb_settings()

SELECT * FROM duckdb_functions()

SELECT * FROM duckdb_databases()

SELECT * FROM duckdb_views()

SELECT * FROM duckdb_columns()

SELECT * FROM duckdb_schemas()

SELECT * FROM duckdb_types()

SELECT * FROM duckdb_variables()

SELECT * FROM duckdb_extensions()

SELECT * FROM duckdb_secrets(redact => false)

SELECT * FROM duckdb_memory()

SELECT * FROM duckdb_temporary_files()

SELECT * FROM duckdb_logs()

SELECT * FROM duckdb_connections()

SELECT * FROM duckdb_approx_database_count()

SELECT * FROM duckdb_prepared_statements()

SELECT * FROM duckdb_external_file_cache()

SELECT * FROM pragma_database_size()

SELECT * FROM pragma_storage_info('logs')

SELECT * FROM pragma_show('logs')

SELECT * FROM pragma_platform()

SELECT * FROM pragma_user_agent()

SELECT * FROM which_secret('s3://x', 's3')

SELECT * FROM enable_profiling()

SELECT * FROM test_all_types()

SELECT * FROM test_vector_types(NULL::INTEGER)

SELECT * FROM seq_scan('logs')

SELECT * FROM index_scan('logs')

SELECT * FROM summary('logs')

SELECT * FROM checkpoint()

SELECT * FROM force_checkpoint()

SELECT * FROM repeat_row(1, 2, num_rows => 1000000000)

SELECT * FROM json_each('{"a": 1}')

SELECT * FROM json_tree('{"a": 1}')

SELECT * FROM sql_auto_complete('SEL')

SELECT * FROM from_substrait('x')

SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')

SELECT * FROM query_table(['logs', '{{b_segment}}'])

SELECT * FROM pandas_scan(140000000000)

SELECT * FROM arrow_scan_dumb(1, 2, 3)

SELECT * FROM python_arrow_scan(1)

SELECT * FROM information_schema.tables

SELECT * FROM information_schema.columns

-- engine: both
SELECT * FROM information_schema.schemata

SELECT * FROM pg_catalog.pg_tables

SELECT * FROM pg_class

SELECT * FROM sqlite_master

SELECT * FROM system.main.duckdb_tables

SELECT * FROM temp.logs

SELECT * FROM memory.main.logs

PRAGMA show_tables

PRAGMA table_info('logs')

PRAGMA enable_logging

PRAGMA import_database('{{home}}')

SET enable_external_access = true

SET lock_configuration = false

SET VARIABLE x = (SELECT 1)

SET allowed_directories = ['/']

RESET ALL

CALL enable_logging()

CALL duckdb_settings()

EXPLAIN COPY (SELECT 1) TO '/tmp/x'

EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1

EXPLAIN EXPLAIN SELECT 1

EXPLAIN (FORMAT json) SELECT 1

DESCRIBE SELECT * FROM read_csv('/etc/passwd')

SUMMARIZE SELECT * FROM read_csv('/etc/passwd')

FROM read_csv('/etc/passwd')

FROM logs SELECT read_text('/etc/passwd')

SELECT * FROM (VALUES (1)) v, '{{b_segment}}' AS s

WITH logs AS (FROM '{{b_segment}}') SELECT * FROM logs

WITH x AS MATERIALIZED (FROM read_text('/etc/passwd')) SELECT 1

SELECT * FROM logs UNION ALL FROM '{{b_segment}}'

SELECT * FROM logs EXCEPT (SELECT * FROM '{{b_segment}}')

PIVOT '{{b_segment}}' ON severity

UNPIVOT '{{b_segment}}' ON message

SHOW TABLES FROM memory

SELECT * FROM (SHOW ALL TABLES)

VACUUM ANALYZE

DEALLOCATE p

EXECUTE p('{{b_segment}}')

COMMENT ON TABLE logs IS 'x'

-- engine: both
SELECT * FROM parquet.`{{b_segment}}`

-- engine: both
SELECT * FROM csv.`/etc/passwd`

-- engine: both
SELECT * FROM text.`/proc/self/environ`

-- engine: both
SELECT * FROM binaryFile.`{{home}}`

-- engine: both
SELECT * FROM delta."/etc"

-- engine: spark
SELECT java_method('java.lang.System', 'getenv', 'HOSTILE_CANARY')

-- engine: spark
SELECT reflect('java.lang.System', 'getProperty', 'user.dir')

-- engine: spark
SELECT try_reflect('java.lang.Runtime', 'getRuntime')

-- engine: spark
SELECT input_file_name() FROM logs

-- engine: spark
SELECT current_catalog(), current_database()

-- engine: spark
SELECT * FROM spark_catalog.default.logs

-- engine: spark
SELECT * FROM global_temp.logs

-- engine: spark
SHOW TABLES IN global_temp

DESCRIBE '{{b_segment}}'

SHOW COLUMNS FROM sqlite_master

-- engine: spark
ADD JAR '/tmp/x.jar'

-- engine: spark
SET -v

-- engine: spark
CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'

-- engine: spark
SELECT xpath('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>', 'x/text()')

-- engine: spark
SELECT spark_partition_id(), monotonically_increasing_id() FROM logs

-- engine: spark
SELECT TRANSFORM (message) USING 'cat /etc/passwd' FROM logs

-- engine: spark
SELECT /*+ BROADCAST(logs) */ assert_true(false), raise_error('x') FROM logs

-- engine: spark
INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1
