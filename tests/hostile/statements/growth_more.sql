-- More values that grow; a file whose name ends with _more runs with the slow tests.

WITH a0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS x)%%{", a{n} AS (SELECT concat_ws(x, x, x) AS x FROM a{p})" * 20}%% SELECT length(x) FROM a20

WITH a0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS x)%%{", a{n} AS (SELECT printf('%s%s%s%s', x, x, x, x) AS x FROM a{p})" * 16}%% SELECT length(x) FROM a16

WITH a0 AS (SELECT 'xxxxxxxx' AS x)%%{", a{n} AS (SELECT regexp_replace(x, '(.*)', '\\\\1\\\\1\\\\1\\\\1') AS x FROM a{p})" * 14}%% SELECT length(x) FROM a14

WITH a0 AS (SELECT 'xxxxxxxx'::BLOB AS x)%%{", a{n} AS (SELECT encode(to_base64(x)) AS x FROM a{p})" * 38}%% SELECT octet_length(x) FROM a38

WITH a0 AS (SELECT rpad('x', 1000, 'x') AS x)%%{", a{n} AS (SELECT rpad(x, 1000, x) || x || x AS x FROM a{p})" * 22}%% SELECT length(x) FROM a22

SELECT length(lpad('x', 1000, 'y') || rpad('x', 1000, 'y')) FROM range(1000000)

SELECT sum(length(lpad(message, 1000, 'y'))) FROM logs, range(1000000)

WITH a0 AS (SELECT [1, 2, 3, 4] AS x)%%{", a{n} AS (SELECT x || x || x || x AS x FROM a{p})" * 14}%% SELECT len(x) FROM a14

WITH a0 AS (SELECT json('{}') AS x)%%{", a{n} AS (SELECT json_object('a', x, 'b', x) AS x FROM a{p})" * 26}%% SELECT length(x::VARCHAR) FROM a26

WITH a0 AS (SELECT '{"a": 1}'::JSON AS x)%%{", a{n} AS (SELECT json_merge_patch(x, json_object('k{n}', x)) AS x FROM a{p})" * 26}%% SELECT length(x::VARCHAR) FROM a26

SELECT len(list_reduce(list_transform(range(40), lambda i: [1]), lambda a, b: a || a))

SELECT len(list_reduce([[1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1], [1]], lambda a, b: list_concat(a, a)))

SELECT array_reduce(list_transform(range(60), lambda i: 'x'), lambda a, b: concat(a, a, a))

SELECT list_transform(range(1000), lambda i: rpad('x', 1000, 'x')) FROM range(10000)

SELECT list_transform(list_transform(range(1000), lambda i: message), lambda m: m || m) FROM logs, range(100000)

SELECT [rpad('x', 1000, 'x') || i FOR i IN range(1000)] FROM range(100000)

SELECT sum(len(list_transform(range(1000), lambda i: range))) FROM range(1000000)

SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c, range(1000000) d

SELECT a.range * b.range AS x FROM range(1000000) a, range(1000000) b ORDER BY x DESC

SELECT a.range, b.range FROM range(1000000) a, range(1000000) b

SELECT string_agg(rpad('x', 1000, 'x'), '') FROM range(1000000)

SELECT length(group_concat(message)) FROM logs, range(1000000)

SELECT listagg(rpad(message, 1000, 'x'), ',') FROM logs, range(1000000)

SELECT array_agg(range ORDER BY range DESC) FROM range(1000000)

SELECT histogram(a.range * 1000 + b.range) FROM range(1000000) a, range(1000) b

SELECT json_group_array(rpad('x', 1000, 'x')) FROM range(1000000)

SELECT json_group_object(range::VARCHAR, rpad('x', 1000, 'x')) FROM range(1000000)

SELECT count(DISTINCT rpad(range::VARCHAR, 1000, 'x')) FROM range(1000000)

SELECT DISTINCT rpad(range::VARCHAR, 1000, 'x') FROM range(1000000)

SELECT rpad(range::VARCHAR, 1000, 'x') AS x FROM range(1000000) ORDER BY 1

SELECT rpad(range::VARCHAR, 1000, 'x') AS x, count(*) FROM range(1000000) GROUP BY 1

SELECT approx_quantile(a.range, [0.1, 0.5]), approx_top_k(a.range, 1000000) FROM range(1000000) a

SELECT min_by(rpad('x', 1000, 'x'), range, 1000000) FROM range(1000000)

SELECT quantile_cont(range, list_transform(range(1000), lambda i: i / 1000)) FROM range(1000000)

SELECT mode(rpad(range::VARCHAR, 1000, 'x')) FROM range(1000000)

SELECT median(rpad(range::VARCHAR, 1000, 'x')) FROM range(1000000)

SELECT entropy(rpad(range::VARCHAR, 1000, 'x')), mad(range) FROM range(1000000)

SELECT count(*) FROM (SELECT unnest(list_transform(range(1000), lambda i: message)) FROM logs, range(100000))

SELECT unnest(list) FROM (SELECT list(range) AS list FROM range(1000000)) x, range(1000)

SELECT count(*) FROM range(1000000) a, unnest(range(1000)) b, unnest(range(1000)) c

SELECT count(*) FROM range(1000) a, LATERAL (SELECT unnest(range(1000))) b, LATERAL (SELECT unnest(range(1000))) c, LATERAL (SELECT unnest(range(1000))) d

SELECT list_zip(range(1000), range(1000), range(1000)) FROM range(1000000)

SELECT list_sort(list_concat(range(1000), range(1000))) FROM range(1000000)

SELECT list_distinct(list_transform(range(1000), lambda i: i::VARCHAR || range)) FROM range(100000)

SELECT array_to_string(list_transform(range(1000), lambda i: rpad('x', 1000, 'x')), 'yyyyyyyyyy') FROM range(10000)

SELECT array_to_string(list(rpad('x', 1000, 'x')), ',') FROM range(1000000)

SELECT string_split(rpad('x', 1000, 'x'), '') FROM range(1000000)

SELECT regexp_extract_all(string_agg('xyz', ''), '(x)(y)(z)', 0) FROM range(1000000)

SELECT string_to_array(string_agg('x', ','), ',') FROM range(1000000)

SELECT map(list(range), list(rpad('x', 1000, 'x'))) FROM range(1000000)

SELECT map_concat(attributes, attributes, attributes) FROM logs, range(100000)

SELECT map_entries(attributes) FROM logs, range(100000)

SELECT struct_pack(a := rpad('x', 1000, 'x'), b := range(1000)) FROM range(1000000)

SELECT struct_insert({'a': range(1000)}, b := range(1000)) FROM range(1000000)

SELECT to_json(list_transform(range(1000), lambda i: attributes)) FROM logs, range(1000)

SELECT json_pretty(to_json(range(1000))) FROM range(100000)

SELECT json_structure(to_json(list_transform(range(1000), lambda i: attributes))) FROM logs, range(1000)

SELECT json_transform(to_json(range(1000)), '["VARCHAR"]') FROM range(100000)

SELECT from_json(to_json(range(1000)), '["BIGINT"]') FROM range(100000)

SELECT json_keys(json_group_object(range::VARCHAR, 1)) FROM range(1000000)

SELECT row_number() OVER (ORDER BY rpad(range::VARCHAR, 1000, 'x')) FROM range(1000000)

SELECT string_agg(rpad('x', 1000, 'x'), '') OVER (ORDER BY range) FROM range(100000)

SELECT string_agg(message, ',') OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM logs, range(100000)

SELECT histogram(range) OVER (ORDER BY range) FROM range(100000)

SELECT * FROM logs a, logs b, logs c, logs d, logs e, logs f, logs g, logs h

SELECT a.message || b.message || c.message || d.message FROM logs a, logs b, logs c, logs d, range(1000)

SELECT a.* FROM logs a, range(1000000)

SELECT attributes, resource_attrs, scope_attrs FROM logs, range(1000000) ORDER BY range DESC

SELECT count(*) FROM logs GROUP BY CUBE (timestamp, service_name, severity, message, trace_id, span_id, flags, fingerprint, collector, scope_name, event_name, body)

SELECT count(*) FROM range(1000000) GROUP BY CUBE (range, range % 2, range % 3, range % 5, range % 7, range % 11, range % 13, range % 17, range % 19, range % 23)

SELECT * FROM range(1000000) a UNION SELECT * FROM range(1000000) b UNION SELECT * FROM range(1000000) c

SELECT * FROM range(1000000) a EXCEPT ALL SELECT * FROM range(1000000) b INTERSECT ALL SELECT * FROM range(1000000) c

SELECT generate_series(1, 1000), generate_series(1, 1000), generate_series(1, 1000) FROM range(1000000)

SELECT decode(encode(string_agg(rpad('x', 1000, 'x'), ''))) FROM range(1000000)

SELECT md5(string_agg(rpad('x', 1000, 'x'), '')), sha256(string_agg(rpad('x', 1000, 'x'), '')) FROM range(1000000)

SELECT reverse(upper(strip_accents(nfc_normalize(string_agg(rpad('x', 1000, 'x'), ''))))) FROM range(1000000)

SELECT translate(string_agg(rpad('x', 1000, 'x'), ''), 'x', '𝕏') FROM range(1000000)

SELECT from_hex(hex(string_agg(rpad('x', 1000, 'x'), ''))) FROM range(1000000)

SELECT length(format('{:999d}{:999d}{:999d}{:999d}', 1, 2, 3, 4)) FROM range(1000000)

SELECT sum(length(printf('%999d%999d%999d', range, range, range))) FROM range(1000000)

SELECT sum(length(strftime(TIMESTAMP '2024-01-01' + to_seconds(range), '%%{"%A %B " * 2000}%%'))) FROM range(1000000)

SELECT length(rpad('x', 1000, 'x') || %%{"rpad('x', 1000, 'x')" * 900 by " || "}%%) FROM range(1000000)

SELECT concat(%%{"message" * 5000 by ", "}%%) FROM logs, range(10000)

SELECT [%%{"message" * 5000 by ", "}%%] FROM logs, range(10000)

SELECT product(range + 1) FROM range(1000000)
