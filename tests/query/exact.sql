SELECT * FROM logs
SELECT count(*) FROM logs
SELECT service_name, count(*) FROM logs GROUP BY 1
SELECT service_name, severity, count(*) AS n FROM logs GROUP BY ALL ORDER BY n DESC, service_name, severity LIMIT 5
SELECT attributes['http.status_code'] AS code, count(*) FROM logs GROUP BY code
SELECT attributes['http.Method'], attributes['http.method'], count(*) FROM logs GROUP BY ALL
SELECT attributes['ratio'] FROM logs
SELECT attributes['ok'], attributes['raw'], attributes['list'], attributes['nested'], attributes['wrapped'] FROM logs
SELECT attributes['it''s'], attributes['big'], attributes['absent'] FROM logs
SELECT resource_attrs['pod'], scope_attrs['lib'] FROM logs
SELECT * FROM logs WHERE attributes['http.status_code'] = '500' AND service_name = 'cart'
SELECT * EXCLUDE (attributes, resource_attrs) FROM logs WHERE attributes['ok'] = 'true'
SELECT * REPLACE (upper(message) AS message) FROM logs WHERE severity_number > 9
SELECT l.*, l.attributes['ok'] AS ok FROM logs l WHERE l.severity = 'ERROR'
SELECT attributes, resource_attrs, scope_attrs FROM logs
SELECT map_keys(attributes), cardinality(resource_attrs) FROM logs
SELECT trace_id, span_id FROM logs WHERE trace_id IS NOT NULL
SELECT sum(fingerprint), min(fingerprint), max(flags), avg(severity_number) FROM logs
SELECT DISTINCT collector, organization_id FROM logs
SELECT collector, count(*) FROM logs WHERE collector = 'edge' GROUP BY collector
SELECT max(timestamp), min(timestamp), count(observed_timestamp) FROM logs
SELECT epoch_ns(timestamp), strftime(timestamp, '%Y-%m-%d %H:%M:%S.%n') FROM logs
SELECT a.service_name, b.n FROM (SELECT DISTINCT service_name FROM logs) a JOIN (SELECT service_name, count(*) n FROM logs GROUP BY 1) b USING (service_name)
SELECT count(*) FROM logs a JOIN logs b ON a.fingerprint = b.fingerprint AND a.attributes['ok'] = b.attributes['ok']
WITH e AS (SELECT * FROM logs WHERE severity = 'ERROR') SELECT service_name, count(*) FROM e GROUP BY 1
WITH e AS (SELECT *, attributes['ok'] AS ok FROM logs) SELECT ok, attributes['http.method'], count(*) FROM e GROUP BY ALL
SELECT message FROM logs WHERE severity = 'ERROR' UNION ALL SELECT service_name FROM logs WHERE severity = 'WARN'
SELECT severity FROM logs EXCEPT SELECT 'INFO'
SELECT service_name, row_number() OVER (PARTITION BY service_name ORDER BY timestamp, fingerprint) AS r FROM logs QUALIFY r <= 3
SELECT message, lag(severity_number) OVER (ORDER BY timestamp, fingerprint) FROM logs
SELECT service_name, (SELECT count(*) FROM logs i WHERE i.service_name = o.service_name) AS n FROM (SELECT DISTINCT service_name FROM logs) o
SELECT count(*) FROM logs o WHERE EXISTS (SELECT 1 FROM logs i WHERE i.fingerprint = o.fingerprint AND i.attributes['ok'] = 'true')
SELECT * FROM logs a SEMI JOIN (SELECT DISTINCT fingerprint FROM logs WHERE severity = 'WARN') b USING (fingerprint)
SELECT count(*) FILTER (WHERE severity = 'ERROR'), count(DISTINCT service_name) FROM logs
SELECT severity AS s, count(*) AS c FROM logs WHERE s <> 'INFO' GROUP BY s HAVING c > 1 ORDER BY s
SELECT list(severity ORDER BY timestamp, fingerprint)[1:3], string_agg(DISTINCT severity, ',' ORDER BY severity) FROM logs
SELECT unnest(map_keys(attributes)) AS key, count(*) FROM logs GROUP BY key
SELECT key, count(*) FROM logs, unnest(map_keys(attributes)) AS u(key) GROUP BY key
SELECT service_name, quantile_cont(severity_number, 0.5), percentile_disc(0.9) WITHIN GROUP (ORDER BY severity_number) FROM logs GROUP BY 1
SELECT regexp_extract(message, '(\d+)', 1), message ILIKE '%LOGGED%', message ~ 'b.om' FROM logs
SELECT CASE WHEN attributes['http.status_code'] >= '500' THEN 'bad' ELSE 'good' END AS q, count(*) FROM logs GROUP BY q
SELECT try_cast(attributes['http.status_code'] AS INTEGER) AS code, count(*) FROM logs GROUP BY code
SELECT list_transform(map_values(attributes), lambda v: length(v)) FROM logs
SELECT [k FOR k IN map_keys(attributes) IF k LIKE 'http%'] FROM logs
SELECT {'service': service_name, 'n': count(*)} FROM logs GROUP BY service_name
SELECT body->>'$.a', json_extract_string(body, '$.a') FROM logs
SELECT service_name, severity, count(*), grouping(severity) FROM logs GROUP BY ROLLUP (service_name, severity)
SELECT (fingerprint + 1.5)::DOUBLE, flags // 7, flags % 7, -severity_number, 2 ** 3 AS eight FROM logs WHERE fingerprint < 9e18
SELECT x, y FROM range(3) t(x), generate_series(1, 2) s(y)
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(n, t)
SELECT timestamp FROM logs ORDER BY timestamp DESC, fingerprint LIMIT 10 OFFSET 3
SELECT count(*) FROM logs l LEFT JOIN (SELECT 'cart' AS service_name, 1 AS mark) m USING (service_name) WHERE mark IS NULL
FROM logs SELECT message WHERE severity = 'ERROR'
SELECT 1 AS a, 2 AS a
SELECT DISTINCT attributes['http.method'] FROM logs ORDER BY attributes['http.method']
SELECT DISTINCT service_name AS s FROM logs ORDER BY s DESC
WITH E AS (SELECT * FROM logs), f(m) AS (SELECT message FROM e) SELECT m, count(*) FROM F GROUP BY m
SELECT n FROM (WITH x AS (SELECT count(*) AS n FROM logs) SELECT n FROM x)
SELECT message AS service_name, count(*) FROM logs GROUP BY service_name, message
SELECT upper(severity) AS severity FROM logs WHERE severity = 'ERROR'
SELECT -severity_number AS severity_number FROM logs ORDER BY severity_number LIMIT 5
SELECT x.timestamp FROM (SELECT {'timestamp': severity_number} AS x FROM logs)
SELECT [timestamp || '!' FOR timestamp IN map_keys(attributes)] AS l FROM logs
SELECT list_filter(map_keys(attributes), lambda trace_id: trace_id = 'ok') FROM logs
SELECT a.message FROM logs a JOIN LATERAL (SELECT a.severity_number + 1 AS m) b ON b.m > 10
SELECT o.service_name FROM logs o WHERE o.severity_number = (SELECT max(severity_number) FROM logs WHERE attributes['ok'] = o.attributes['ok'])
SELECT count(*) FROM (SELECT attributes['ok'] AS attributes FROM logs) WHERE attributes = 'true'
SELECT severity, sum(count(*)) OVER (ORDER BY severity) AS running FROM logs GROUP BY severity ORDER BY severity
SELECT service_name, max_by(message, fingerprint), arg_min(attributes['ok'], fingerprint) AS ok FROM logs GROUP BY ALL
SELECT l.service_name FROM logs l ANTI JOIN (SELECT 'cart' AS service_name) x ON l.service_name = x.service_name
SELECT a.n, b.n FROM (SELECT count(*) n FROM logs) a CROSS JOIN (SELECT count(*) n FROM logs WHERE severity = 'ERROR') b
SELECT message FROM logs WHERE (service_name, severity) IN (('cart', 'ERROR'), ('pay', 'WARN'))
SELECT message FROM logs WHERE severity_number = ANY (SELECT max(severity_number) FROM logs)
(SELECT severity FROM logs) INTERSECT (SELECT 'INFO' UNION SELECT 'WARN') ORDER BY 1
SELECT service_name, severity FROM logs UNION BY NAME SELECT severity FROM logs
SELECT count(*) AS n FROM logs GROUP BY GROUPING SETS ((service_name), (severity), ()) ORDER BY n
SELECT json_array_length(json_group_array(severity)) AS n FROM logs
SELECT attributes['nested']->>'$.a' AS a, count(*) FROM logs GROUP BY a
SELECT timestamp < observed_timestamp, count(*) FROM logs GROUP BY 1
SELECT severity IS NOT NULL, NOT severity = 'INFO', severity NOT LIKE 'E%' FROM logs
SELECT 'it''s', NULL, 1.50::DECIMAL(9, 2), [1, NULL], MAP {'k': 1}
SELECT attributes.ok AS ok, l.attributes.ok AS again FROM logs l
SELECT *, severity AS s FROM logs ORDER BY 2, 1, fingerprint LIMIT 5
SELECT severity, timestamp, fingerprint FROM logs ORDER BY ALL LIMIT 5
SELECT timestamp, fingerprint FROM logs ORDER BY ALL LIMIT 7 OFFSET 2
SELECT date_trunc('hour', timestamp) AS h, severity, count(*) FROM logs WHERE timestamp >= '2024-01-01' AND timestamp < '2024-01-01 23:59' GROUP BY ALL ORDER BY ALL LIMIT 4
WITH e AS NOT MATERIALIZED (SELECT * FROM logs WHERE severity = 'WARN') SELECT (SELECT count(*) FROM e) AS a, (SELECT max(fingerprint) FROM e) AS b
SELECT * FROM (SELECT service_name, count(*) AS n FROM logs GROUP BY 1) ORDER BY n DESC, service_name LIMIT 2
SELECT fingerprint FROM logs WHERE (severity = 'WARN' OR severity_number > (SELECT 9)) AND (service_name = 'cart' OR flags > (SELECT 1000000)) AND message <> 'x'
SELECT a.fingerprint FROM logs a LEFT JOIN logs b ON a.fingerprint = b.fingerprint WHERE (a.severity = 'WARN' OR b.severity = 'WARN') AND (b.service_name = 'pay' OR a.flags > 7)
SELECT service_name, unnest(map_keys(scope_attrs)) AS key, fingerprint FROM logs ORDER BY service_name, timestamp, fingerprint LIMIT 20 OFFSET 5
SELECT timestamp, unnest(list_filter(map_keys(attributes), lambda k: k = 'raw')) AS key FROM logs ORDER BY timestamp, fingerprint LIMIT 30
SELECT DISTINCT ON (service_name) service_name, fingerprint FROM logs ORDER BY service_name, timestamp, fingerprint LIMIT 3
SELECT DISTINCT ON (severity, service_name) severity, message FROM logs ORDER BY timestamp DESC, fingerprint LIMIT 5 OFFSET 3
SELECT fingerprint::HUGEINT // 7 AS k, typeof(fingerprint::HUGEINT) AS t, count(*) FROM logs GROUP BY fingerprint::HUGEINT ORDER BY fingerprint::HUGEINT LIMIT 9
SELECT k // 7 AS a, typeof(k) AS t FROM (SELECT DISTINCT fingerprint::HUGEINT AS k FROM logs WHERE severity = 'ERROR')
SELECT max(fingerprint::HUGEINT) // 7 AS a, bit_and(flags::HUGEINT) AS b, typeof(min(flags::HUGEINT)) AS t, arg_max(flags::HUGEINT, fingerprint) // 7 AS c FROM logs
SELECT json_object('k', body::JSON, 'l', [body::JSON]) AS x, count(*) AS n FROM logs GROUP BY body::JSON, [body::JSON]
SELECT typeof(md5(message)::UUID) AS t, {'id': md5(severity)::UUID} AS id, count(*) AS n FROM logs GROUP BY ALL
SELECT * FROM logs WHERE severity = 'WARN' OR service_name = 'cart' ORDER BY timestamp DESC, fingerprint LIMIT 20 OFFSET 30
SELECT attributes, resource_attrs, fingerprint FROM logs AS " WHERE " ORDER BY timestamp, fingerprint LIMIT 7
SELECT * FROM logs WHERE severity = 'none' ORDER BY timestamp LIMIT 7
SELECT severity AS timestamp, attributes, fingerprint FROM logs ORDER BY timestamp DESC, fingerprint LIMIT 20
SELECT count(*) FROM logs WHERE trace_id IN (SELECT trace_id FROM logs WHERE severity = 'ERROR')
SELECT count(*) FROM logs WHERE trace_id NOT IN (SELECT max(trace_id) FROM logs)
SELECT trace_id, span_id FROM logs WHERE (trace_id, span_id) IN (SELECT trace_id, span_id FROM logs WHERE severity = 'WARN')
SELECT trace_id, count(*) FROM logs GROUP BY trace_id HAVING trace_id < '80'
