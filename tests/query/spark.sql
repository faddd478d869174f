SELECT * FROM logs WHERE severity = 'ERROR'
SELECT attributes['http.status_code'], attributes['ratio'], attributes['ok'], attributes['raw'], attributes['big'] FROM logs
SELECT time_bucket(INTERVAL '7 minutes', timestamp) AS b, severity, count(*) FROM logs GROUP BY b, severity
SELECT sum(severity_number), avg(severity_number), sum(fingerprint), avg(fingerprint), sum(flags), max(flags), avg(flags) FROM logs
SELECT contains(message, 'log'), starts_with(message, 'user'), ends_with(message, 'two'), message LIKE '%"quoted"_\%', message ILIKE 'USER%', message NOT LIKE '%boom' FROM logs
SELECT try_cast(attributes['ratio'] AS DOUBLE) AS r, try_cast(attributes['big'] AS BIGINT) AS b, count(*) FROM logs GROUP BY r, b
SELECT service_name, row_number() OVER (PARTITION BY service_name ORDER BY timestamp, fingerprint) AS r FROM logs QUALIFY r <= 3 ORDER BY timestamp, fingerprint
SELECT severity, count(*) AS n FROM logs WHERE attributes['absent'] = 'x' GROUP BY 1
SELECT "http.status_code" AS code, attributes['ratio'] < 1 AS low, count(*) FROM logs WHERE attributes['ratio'] >= 0.5 OR "http.status_code" IN (200, 404.5) GROUP BY ALL
SELECT count(*) FROM logs WHERE trace_id IN (SELECT trace_id FROM logs WHERE severity IN ('error', 'Warn')) AND severity <> 'info'

SELECT count(*) FROM logs
SELECT severity, count(*) AS n FROM logs GROUP BY severity ORDER BY n DESC, severity
SELECT * EXCLUDE (attributes, resource_attrs, scope_attrs) FROM logs
SELECT attributes FROM logs
SELECT resource_attrs, scope_attrs FROM logs
SELECT timestamp, observed_timestamp, trace_id, span_id, flags, fingerprint FROM logs
SELECT attributes['http.Method'] AS upper_key, attributes['http.method'] AS lower_key, attributes['list'], attributes['nested'], attributes['wrapped'], attributes['it''s'] FROM logs
SELECT resource_attrs['pod'], scope_attrs['lib'], attributes['absent'] FROM logs
SELECT attributes['ratio'] AS r, count(*) FROM logs GROUP BY r ORDER BY r
SELECT collector, organization_id, count(*) FROM logs GROUP BY ALL
SELECT min(timestamp), max(timestamp), count(DISTINCT service_name) FROM logs
SELECT timestamp FROM logs ORDER BY timestamp DESC, fingerprint LIMIT 10 OFFSET 3
SELECT count(*) FROM logs WHERE timestamp >= '2024-01-01 01:00:00' AND timestamp < '2024-01-01T01:30:00.000000001Z'
SELECT message, timestamp FROM logs WHERE timestamp < '1970-01-01'
SELECT date_trunc('hour', timestamp) AS h, count(*) FROM logs GROUP BY h ORDER BY h
SELECT date_trunc('week', timestamp), date_trunc('month', timestamp), date_trunc('day', timestamp), count(*) FROM logs GROUP BY ALL
SELECT hour(timestamp), minute(timestamp), second(timestamp), year(timestamp), month(timestamp), day(timestamp), count(*) FROM logs GROUP BY ALL
SELECT dayofweek(timestamp), isodow(timestamp), week(timestamp), quarter(timestamp), dayofyear(timestamp), count(*) FROM logs GROUP BY ALL
SELECT epoch(timestamp), epoch_ms(timestamp), epoch_us(timestamp), epoch_ns(timestamp), EXTRACT(hour FROM timestamp) FROM logs
SELECT timestamp + INTERVAL 1 MONTH, timestamp - INTERVAL '90 minutes', CAST(timestamp AS DATE), CAST(timestamp AS TIMESTAMP) FROM logs
SELECT count(*) FROM logs WHERE timestamp > now() - INTERVAL 2 HOUR
SELECT count(*), today() AS today FROM logs WHERE CAST(timestamp AS DATE) = DATE '2024-01-01'
SELECT service_name, sum(severity_number * 1.5), sum(severity_number / 7), min(fingerprint), max(message) FROM logs GROUP BY service_name
SELECT severity_number / 0, severity_number // 4, -severity_number, severity_number % 4, fingerprint // 1000, 2 * severity_number + 1 FROM logs
SELECT (severity_number - 9) / (severity_number - 9), 7 / 2, 7 // 2, 0.5 + 1, 1e3, 9223372036854775807 FROM logs LIMIT 1000
SELECT stddev(severity_number), var_pop(severity_number), stddev_pop(severity_number), variance(severity_number) FROM logs
SELECT service_name, median(severity_number), quantile_cont(severity_number, 0.9) FROM logs GROUP BY 1
SELECT bool_and(severity = 'INFO'), bool_or(severity = 'INFO'), count_if(severity = 'INFO'), count(*) FILTER (WHERE severity = 'ERROR') FROM logs
SELECT service_name, arg_max(message, fingerprint), min_by(attributes['ok'], fingerprint) AS ok FROM logs GROUP BY ALL
SELECT lower(message), upper(message), length(message), strlen(message), left(message, 3), right(message, 3), substring(message, 3, 4) FROM logs
SELECT replace(message, 'user', 'User'), strpos(message, 'o'), md5(message), message || '!' || service_name, concat(message, NULL, severity_number) FROM logs
SELECT upper(service_name), count(*) FROM logs GROUP BY upper(service_name) ORDER BY upper(service_name)
SELECT regexp_matches(message, '\d+ logged'), regexp_matches(message, 'A.*TWO', 'i'), message ~ '. boom', regexp_full_match(message, 'user .*') FROM logs
SELECT try_cast(attributes['http.status_code'] AS INTEGER) AS code, count(*) FROM logs GROUP BY code
SELECT sum(try_cast(attributes['ratio'] AS DOUBLE)) FROM logs WHERE attributes['ratio'] IN ('0.5', '3', '1e+16')
SELECT round(severity_number / 7, 2), floor(severity_number / 7), ceil(severity_number / 7), abs(severity_number - 10), round(-2.5::DOUBLE) FROM logs
SELECT CAST(severity_number AS VARCHAR), CAST(fingerprint AS DOUBLE), CAST(2.5::DOUBLE AS INTEGER), CAST('12' AS BIGINT), CAST(flags AS BIGINT) + 1 FROM logs
SELECT CASE WHEN severity_number > 9 THEN 'bad' ELSE 'good' END AS q, count(*) FROM logs GROUP BY q
SELECT CASE severity WHEN 'ERROR' THEN 1 WHEN 'WARN' THEN 2.5 END, coalesce(attributes['ok'], 'none'), nullif(severity, 'INFO'), if(flags > 5, 1, 2), greatest(severity_number, 10, NULL) FROM logs
SELECT severity IS NULL, body IS NOT NULL, NOT severity = 'INFO', severity IS DISTINCT FROM body, severity_number BETWEEN 10 AND 13, severity IN ('INFO', 'WARN') FROM logs
SELECT count(*) FROM logs WHERE trace_id IS NULL OR trace_id = 'ABCD' OR span_id <> '00'
SELECT message FROM logs WHERE organization_id = '12340000-0000-4000-8000-000000000000' AND message <> ''
SELECT message, lag(severity_number) OVER (ORDER BY timestamp, fingerprint), lead(severity, 2) OVER (ORDER BY timestamp, fingerprint) FROM logs
SELECT severity, sum(count(*)) OVER (ORDER BY severity) AS running FROM logs GROUP BY severity ORDER BY severity
SELECT rank() OVER (PARTITION BY service_name ORDER BY severity_number DESC), dense_rank() OVER (ORDER BY severity_number), avg(severity_number) OVER (PARTITION BY service_name ORDER BY timestamp, fingerprint ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM logs
WITH e AS (SELECT *, attributes['ok'] AS ok FROM logs) SELECT ok, attributes['http.method'], count(*) FROM e GROUP BY ALL
WITH E AS (SELECT * FROM logs), f(m) AS (SELECT message FROM e) SELECT m, count(*) FROM F GROUP BY m
SELECT a.service_name, b.n FROM (SELECT DISTINCT service_name FROM logs) a JOIN (SELECT service_name, count(*) n FROM logs GROUP BY 1) b USING (service_name)
SELECT count(*) FROM logs a JOIN logs b ON a.fingerprint = b.fingerprint AND a.attributes['ok'] = b.attributes['ok']
SELECT * FROM logs a SEMI JOIN (SELECT DISTINCT fingerprint FROM logs WHERE severity = 'WARN') b USING (fingerprint)
SELECT l.service_name FROM logs l ANTI JOIN (SELECT 'cart' AS service_name) x ON l.service_name = x.service_name
SELECT count(*), count(mark) FROM logs l LEFT JOIN (SELECT 'cart' AS service_name, 1 AS mark) m USING (service_name)
SELECT service_name, n, m FROM (SELECT service_name, count(*) n FROM logs GROUP BY 1) a FULL JOIN (SELECT 'new' AS service_name, 1 AS m) b USING (service_name)
SELECT a.n, b.n FROM (SELECT count(*) n FROM logs) a CROSS JOIN (SELECT count(*) n FROM logs WHERE severity = 'ERROR') b
SELECT message FROM logs WHERE severity = 'ERROR' UNION ALL SELECT service_name FROM logs WHERE severity = 'WARN'
SELECT severity FROM logs EXCEPT SELECT 'INFO'
(SELECT severity FROM logs) INTERSECT (SELECT 'INFO' UNION SELECT 'WARN') ORDER BY 1
SELECT service_name, (SELECT count(*) FROM logs i WHERE i.service_name = o.service_name) AS n FROM (SELECT DISTINCT service_name FROM logs) o
SELECT count(*) FROM logs o WHERE EXISTS (SELECT 1 FROM logs i WHERE i.fingerprint = o.fingerprint AND i.attributes['ok'] = 'true')
SELECT count(*) FROM logs WHERE fingerprint IN (SELECT max(fingerprint) FROM logs GROUP BY service_name)
SELECT severity AS s, count(*) AS c FROM logs WHERE s <> 'INFO' GROUP BY s HAVING c > 1 ORDER BY s
SELECT DISTINCT attributes['http.method'] FROM logs ORDER BY attributes['http.method']
SELECT observed_timestamp FROM logs ORDER BY observed_timestamp NULLS FIRST LIMIT 5
SELECT body FROM logs ORDER BY body DESC, fingerprint LIMIT 7
SELECT 1 AS a, 2 AS a, NULL, 'it''s \n', true
SELECT timestamp < observed_timestamp, count(*) FROM logs GROUP BY 1
SELECT map_contains(attributes, 'ok'), cardinality(attributes) FROM logs
SELECT avg(x), sum(x), max(y) FROM (SELECT severity_number / 3 AS x, flags AS y FROM logs WHERE severity = 'none')
SELECT count(*) AS n, max(timestamp) AS last FROM logs WHERE severity = 'none' GROUP BY service_name
SELECT message, severity_number FROM logs WHERE message NOT ILIKE '%USER%' AND severity IS NOT NULL AND (severity = 'INFO') IS TRUE
SELECT delivery, delivery_row, count(*) FROM logs GROUP BY ALL
SELECT * FROM logs WHERE delivery < 0 AND delivery_row > 50
SELECT * FROM (SELECT DISTINCT delivery FROM logs) x JOIN logs USING (delivery)
