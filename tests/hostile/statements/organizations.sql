-- Ways to another organization: its id, its paths, names out of scope, relations and macros of our own.

-- engine: both
-- expect: refused
SELECT message FROM logs WHERE organization_id = '{{b_organization}}'

-- expect: refused
SELECT message FROM logs WHERE organization_id IN ('{{a_organization}}', '{{b_organization}}')

SELECT message FROM logs WHERE organization_id = '{{a_organization}}' OR organization_id <> '{{a_organization}}'

SELECT message FROM logs WHERE organization_id <> '{{a_organization}}'

SELECT message FROM logs WHERE organization_id <> ''

SELECT message FROM logs WHERE organization_id IS NOT NULL OR true

SELECT message FROM logs WHERE NOT (organization_id = '{{a_organization}}')

SELECT message FROM logs WHERE organization_id || '' = '{{b_organization}}'

SELECT message FROM logs WHERE reverse(organization_id) = reverse('{{b_organization}}')

SELECT message FROM logs WHERE organization_id = lower(upper('{{b_organization}}'))

SELECT message FROM logs WHERE md5(organization_id) = md5('{{b_organization}}')

SELECT message FROM logs WHERE organization_id = (SELECT '{{b_organization}}')

SELECT message FROM logs WHERE organization_id IN (SELECT unnest(['{{b_organization}}']))

SELECT message FROM logs WHERE organization_id SIMILAR TO '.*'

SELECT message FROM logs WHERE organization_id GLOB '*'

SELECT message FROM logs WHERE (organization_id, 1) = ('{{b_organization}}', 1)

SELECT message FROM logs WHERE [organization_id] = ['{{b_organization}}']

SELECT message FROM logs WHERE {'a': organization_id} = {'a': '{{b_organization}}'}

SELECT message FROM logs l JOIN (SELECT '{{b_organization}}' AS o) x ON l.organization_id = x.o

SELECT DISTINCT organization_id FROM logs UNION SELECT organization_id FROM metrics UNION SELECT organization_id FROM spans

-- parameters: ["{{b_organization}}"]
SELECT message FROM logs WHERE organization_id = $1

-- parameters: {"o": ["{{b_organization}}"]}
SELECT message FROM logs WHERE organization_id IN $o

-- body: {"organization_id": "b"}
SELECT message FROM logs

-- body: {"org": "b", "organization": "b"}
SELECT message FROM logs

SELECT DISTINCT service_name, collector FROM logs

SELECT count(*), min(service_name), max(service_name) FROM logs

SELECT DISTINCT map_keys(attributes), map_values(resource_attrs) FROM logs

SELECT min(delivery), max(delivery) FROM logs

SELECT approx_top_k(service_name, 100), histogram(service_name), mode(service_name) FROM logs

SELECT list(DISTINCT metric_name) FROM metrics

SELECT list(DISTINCT name) FROM spans

SELECT trace_id FROM spans WHERE trace_id = 'b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2'

SELECT * FROM logs WHERE service_name = '{{b_service}}'

SELECT * FROM logs WHERE contains(message, '{{b_service}}')

SELECT "{{b_service}}" FROM logs

SELECT attributes['{{b_service}}'] FROM logs

SELECT * FROM logs WHERE fingerprint > -9223372036854775808

-- expect: refused
SELECT * FROM "{{home}}/store/db/{{b_organization}}"

-- expect: refused
SELECT * FROM "db/{{b_organization}}"

-- expect: refused
SELECT * FROM "../../{{b_organization}}/logs"

-- expect: refused
SELECT * FROM "{{b_organization}}".logs

-- expect: refused
SELECT * FROM "{{b_name}}"."logs"

-- expect: refused
SELECT * FROM "{{b_organization}}.logs"

-- expect: refused
SELECT * FROM db.main.logs

-- expect: refused
SELECT * FROM main.logs

-- expect: refused
SELECT * FROM memory.logs

-- expect: refused
SELECT * FROM temp.main.scan_1

-- engine: both
-- expect: refused
SELECT * FROM scan_1

-- expect: refused
SELECT * FROM scan_2

-- expect: refused
SELECT * FROM "scan_1"

-- expect: refused
SELECT * FROM logs, scan_1

-- expect: refused
SELECT * FROM logs WHERE EXISTS (SELECT 1 FROM scan_1)

-- expect: refused
SELECT scan_1.message FROM logs

-- expect: refused
SELECT logs.organization_id FROM logs AS scan_1

-- engine: both
-- expect: rows
SELECT scan_1.message FROM logs AS scan_1

-- expect: rows
SELECT scan_2.message FROM logs AS scan_2, spans AS scan_1 LIMIT 3

-- expect: rows
WITH scan_1 AS (SELECT 1 AS x) SELECT * FROM scan_1

-- expect: rows
WITH scan_1 AS (SELECT 1 AS x) SELECT count(*), min(scan_1.x) FROM logs, scan_1

-- expect: rows
WITH logs AS (SELECT 1 AS message) SELECT message FROM logs

-- expect: rows
WITH logs AS (SELECT * FROM logs) SELECT count(*) FROM logs

-- engine: both
-- expect: refused
SELECT * FROM (WITH inner_one AS (SELECT 1 AS x) SELECT * FROM inner_one) AS a, inner_one

-- expect: refused
SELECT * FROM inner_one, (WITH inner_one AS (SELECT 1 AS x) SELECT * FROM inner_one) AS a

-- expect: refused
SELECT (WITH c AS (SELECT 1 AS x) SELECT x FROM c), (SELECT x FROM c)

-- expect: refused
WITH a AS (WITH b AS (SELECT 1 AS x) SELECT * FROM b) SELECT * FROM a, b

-- expect: refused
WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a

-- expect: refused
(WITH c AS (SELECT 1 AS x) SELECT * FROM c) UNION ALL SELECT * FROM c

-- expect: refused
SELECT * FROM (WITH "{{b_segment}}" AS (SELECT 1 AS x) SELECT 1) AS a, "{{b_segment}}"

-- expect: refused
SELECT * FROM "{{b_segment}}", (WITH "{{b_segment}}" AS (SELECT 1 AS x) SELECT * FROM "{{b_segment}}") AS a

-- expect: refused
SELECT * FROM (WITH sqlite_master AS (SELECT 1 AS x) SELECT 1) AS a, sqlite_master

-- expect: refused
SELECT * FROM (WITH duckdb_settings AS (SELECT 1 AS x) SELECT 1) AS a, duckdb_settings

-- expect: refused
SELECT * FROM (WITH scan_2 AS (SELECT 1 AS x) SELECT 1) AS a, scan_2

-- expect: refused
WITH a AS (SELECT 1 AS x), a AS (SELECT 2 AS x) SELECT * FROM a

WITH A AS (SELECT 1 AS x), "a" AS (SELECT 2 AS x) SELECT * FROM a

-- expect: refused
SELECT typed_text(message) FROM logs

-- expect: refused
SELECT double_text(1.0)

-- expect: refused
SELECT first_of_each(map_entries(attributes)) FROM logs

-- expect: refused
SELECT attribute_map([], attributes) FROM logs

-- engine: both
-- expect: refused
SELECT microseconds(timestamp) FROM logs

-- expect: refused
SELECT bucket_start(timestamp, 0) FROM logs

-- expect: refused
SELECT floor_of_thousand(1), floor_of_width(1, 0)

-- expect: refused
SELECT sum_bin(1.0), sum_part(1.0)

-- expect: refused
SELECT exact_sum(1.0)

-- expect: refused
SELECT exact_total([1.0])

-- expect: refused
SELECT count_star()

-- expect: refused
SELECT "||"('a', 'b')

-- expect: refused
SELECT "~~"('a', 'b')

-- expect: refused
SELECT like_escape('a', 'b', 'c')

-- expect: refused
SELECT "MICROSECONDS"(timestamp) FROM logs

-- expect: refused
SELECT __internal_compress_string_hugeint('x')

-- expect: refused
SELECT __internal_decompress_string(1)

-- expect: refused
SELECT create_sort_key('x', 'ASC')

-- expect: refused
SELECT error(service_name) FROM logs

-- expect: refused
SELECT list_aggregate(list(message), 'sum') FROM logs

-- expect: refused
SELECT combine(finalize(x)) FROM (SELECT sum(1) AS x)

-- expect: refused
SELECT alias(message), stats(message), can_cast_implicitly(message, 1) FROM logs

-- expect: refused
SELECT constant_or_null(message, 1), prefix_(message) FROM logs

-- expect: refused
SELECT vector_type(message), hash_table(message) FROM logs

-- expect: refused
SELECT union_tag(union_value(k := 1))

-- expect: refused
SELECT current_localtimestamp(), icu_sort_key('x', 'de')

-- expect: refused
SELECT rowid, filename, file_row_number FROM logs

-- expect: refused
SELECT file_index FROM logs

-- expect: refused
SELECT logs.* FROM logs AS l

-- expect: refused
SELECT (SELECT l FROM logs l LIMIT 1)

-- expect: refused
SELECT to_json(l) FROM logs l

-- expect: refused
SELECT row_to_json(logs) FROM logs

SELECT CAST(service_name AS INTEGER) FROM logs

SELECT CAST(service_name AS TIMESTAMP) FROM logs

SELECT message::JSON FROM logs

SELECT json_extract(message, '$') FROM logs

-- body: {"partial": true}
SELECT CAST(service_name AS INTEGER) FROM logs

-- body: {"format": "sse"}
SELECT CAST(service_name AS INTEGER) FROM logs

-- body: {"format": "csv"}
SELECT 1 / 0, * FROM logs

-- expect: any
EXPLAIN SELECT * FROM logs

-- expect: any
EXPLAIN ANALYZE SELECT * FROM logs

-- expect: any
EXPLAIN ANALYZE SELECT count(*) FROM logs l JOIN spans s USING (trace_id)

EXPLAIN SELECT * FROM logs WHERE organization_id = '{{b_organization}}'
