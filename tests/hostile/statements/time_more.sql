-- More statements that take all the time they may have.

SELECT 1 FROM logs %%{", logs a{n}" * 1000}%%

SELECT 1 FROM range(2) a0 %%{"JOIN range(2) a{n} ON a{n}.range = a{p}.range " * 500}%%

SELECT %%{"attributes['k{n}']" * 3000 by ", "}%% FROM logs

SELECT %%{"\"a.k{n}\"" * 3000 by ", "}%% FROM logs

SELECT %%{"count(DISTINCT message || '{n}')" * 1500 by ", "}%% FROM logs

SELECT %%{"row_number() OVER (ORDER BY severity_number + {n})" * 1000 by ", "}%% FROM logs

WITH c0 AS (SELECT 1 AS x), %%{"c{n} AS (SELECT x FROM c{p} UNION ALL SELECT x FROM c{p})" * 30 by ", "}%% SELECT count(*) FROM c30

WITH c0 AS (SELECT message AS x FROM logs), %%{"c{n} AS (SELECT x FROM c{p} WHERE x IN (SELECT x FROM c{p}))" * 14 by ", "}%% SELECT count(*) FROM c14

SELECT count(*) FROM range(100000) a JOIN range(100000) b ON a.range < b.range

SELECT count(*) FROM range(100000) a JOIN range(100000) b ON a.range % 2 = b.range % 2

SELECT count(*) FROM range(100000) a LEFT JOIN range(100000) b ON hash(a.range) > hash(b.range)

SELECT a.range, (SELECT count(*) FROM range(1000000) b WHERE b.range > a.range) FROM range(100000) a

SELECT max(sha256(sha256(sha256(sha256(sha256(range::VARCHAR)))))) FROM range(1000000) a, unnest(range(1000)) b

SELECT list_sort(list_transform(range(1000), lambda i: sha256(i::VARCHAR || range::VARCHAR))) FROM range(100000)

SELECT list_has_any(list(range), list(-range)) FROM range(1000000)

SELECT list_intersect(list(range), list(-range)), list_has_all(list(range), list(range)) FROM range(1000000)

SELECT count(DISTINCT a.range * b.range) FROM range(10000) a, range(10000) b

SELECT median(a.range * b.range), mode(a.range * b.range) FROM range(10000) a, range(10000) b

SELECT sum(a.range) OVER (ORDER BY b.range RANGE BETWEEN 1000 PRECEDING AND 1000 FOLLOWING) FROM range(1000) a, range(1000) b

SELECT quantile_cont(range, 0.5) OVER (ORDER BY range ROWS BETWEEN 50000 PRECEDING AND 50000 FOLLOWING) FROM range(1000000)

SELECT mode(range % 1000) OVER (ORDER BY range ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM range(1000000)

SELECT count(DISTINCT range) OVER (ORDER BY range) FROM range(1000000)

SELECT max(a.x) FROM (SELECT range AS x FROM range(1000000) ORDER BY hash(range)) a, (SELECT range AS y FROM range(1000000) ORDER BY hash(range)) b WHERE a.x = -b.y

SELECT * FROM range(1000000) ORDER BY sha256(range::VARCHAR) LIMIT 1 OFFSET 999999
