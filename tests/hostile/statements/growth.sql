-- Values that grow: each must end with an answer, 413 or the time limit, within the memory bound.

-- engine: both
-- expect: 413
WITH a0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS x)%%{", a{n} AS (SELECT x || x AS x FROM a{p})" * 30}%% SELECT length(x) FROM a30

-- expect: 413
WITH a0 AS (SELECT message AS x FROM logs)%%{", a{n} AS (SELECT x || x AS x FROM a{p})" * 28}%% SELECT max(length(x)) FROM a28

WITH a0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS x)%%{", a{n} AS (SELECT concat(x, x, x, x) AS x FROM a{p})" * 16}%% SELECT length(x) FROM a16

WITH a0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS x)%%{", a{n} AS (SELECT format('{}{}{}{}', x, x, x, x) AS x FROM a{p})" * 16}%% SELECT length(x) FROM a16

-- engine: both
WITH a0 AS (SELECT 'xxxxxxxx' AS x)%%{", a{n} AS (SELECT replace(x, 'x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') AS x FROM a{p})" * 5}%% SELECT length(x) FROM a5

WITH a0 AS (SELECT 'xxxxxxxx' AS x)%%{", a{n} AS (SELECT regexp_replace(x, '.', '\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0', 'g') AS x FROM a{p})" * 9}%% SELECT length(x) FROM a9

WITH a0 AS (SELECT 'xxxxxxxx' AS x)%%{", a{n} AS (SELECT hex(x) AS x FROM a{p})" * 28}%% SELECT length(x) FROM a28

WITH a0 AS (SELECT 'xxxxxxxx' AS x)%%{", a{n} AS (SELECT url_encode(x || '%%') AS x FROM a{p})" * 30}%% SELECT length(x) FROM a30

WITH a0 AS (SELECT '"' AS x)%%{", a{n} AS (SELECT json_quote(x)::VARCHAR AS x FROM a{p})" * 30}%% SELECT length(x) FROM a30

WITH a0 AS (SELECT '\' AS x)%%{", a{n} AS (SELECT to_json(x)::VARCHAR AS x FROM a{p})" * 30}%% SELECT length(x) FROM a30

WITH a0 AS (SELECT '.' AS x)%%{", a{n} AS (SELECT regexp_escape(x) AS x FROM a{p})" * 30}%% SELECT length(x) FROM a30

-- engine: both
-- expect: 413
WITH a0 AS (SELECT [1, 2, 3, 4] AS x)%%{", a{n} AS (SELECT list_concat(x, x) AS x FROM a{p})" * 30}%% SELECT len(x) FROM a30

WITH a0 AS (SELECT [1, 2, 3, 4] AS x)%%{", a{n} AS (SELECT flatten([x, x, x, x]) AS x FROM a{p})" * 14}%% SELECT len(x) FROM a14

WITH a0 AS (SELECT [1] AS x)%%{", a{n} AS (SELECT [x, x] AS x FROM a{p})" * 28}%% SELECT length(x::VARCHAR) FROM a28

WITH a0 AS (SELECT {'a': 1, 'b': 2} AS x)%%{", a{n} AS (SELECT {'a': x, 'b': x} AS x FROM a{p})" * 24}%% SELECT length(to_json(x)::VARCHAR) FROM a24

WITH a0 AS (SELECT MAP {'a': 'b'} AS x)%%{", a{n} AS (SELECT MAP {'a': x, 'b': x} AS x FROM a{p})" * 22}%% SELECT length(x::VARCHAR) FROM a22

WITH a0 AS (SELECT json('[1]') AS x)%%{", a{n} AS (SELECT json_array(x, x) AS x FROM a{p})" * 28}%% SELECT length(x::VARCHAR) FROM a28

-- engine: both
SELECT length(list_reduce(list_transform(range(40), lambda i: 'xxxxxxxx'), lambda a, b: a || a))

SELECT length(list_reduce(list_transform(range(1000), lambda i: 'x'), lambda a, b: a || a || b))

-- engine: both
-- expect: late
SELECT count(*) FROM range(1000000) a, range(1000000) b

-- engine: both
SELECT string_agg(message, message) FROM logs, range(1000000)

SELECT list(rpad(message, 1000, 'x')) FROM logs, range(1000000)

SELECT approx_top_k(range, 9223372036854775807) FROM range(10)

SELECT min(range, 1000000000), max(range, 1000000000) FROM range(1000)

SELECT arg_min(range, range, 100000000) FROM range(10)

SELECT unnest(range(1000)), unnest(range(1000)) FROM range(1000000)

SELECT regexp_split_to_array(string_agg('x', 'x'), 'x') FROM range(1000000)

SELECT map_from_entries(list((range, rpad('x', 1000, 'x')))) FROM range(1000000)

SELECT list(range) OVER (ORDER BY range ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM range(100000)

SELECT count(*) FROM range(10) GROUP BY GROUPING SETS (%%{"(range % {n})" * 1000 by ", "}%%)

SELECT sum(length(format('%%{"{0:999}" * 800}%%', range))) FROM range(1000000)

SELECT factorial(170), factorial(33), pow(10, 308) * 10, exp(1000), gamma(171), lgamma(1e308)

SELECT 10000000000000000000000000000000000000 * 10000000000000000000000000000000000000

SELECT sum(range::HUGEINT * 170141183460469231731687303715884105727) FROM range(10)

SELECT sum(1.7976931348623157e308) FROM range(100)
