-- CPU and depth: each must be refused or end within query_seconds.

-- engine: both
-- expect: refused
SELECT %%{"(" * 400000}%%1%%{")" * 400000}%%

-- expect: refused
SELECT %%{"(" * 30000}%%1%%{")" * 30000}%%

-- expect: refused
SELECT %%{"(" * 5000}%%1%%{")" * 5000}%%

-- expect: refused
SELECT %%{"(" * 30000}%%

-- expect: refused
SELECT %%{"[" * 9000}%%1%%{"]" * 9000}%%

-- expect: refused
SELECT %%{"{'a': " * 5000}%%1%%{"}" * 5000}%%

-- expect: refused
SELECT %%{"abs(" * 9000}%%1%%{")" * 9000}%%

-- expect: refused
SELECT %%{"CASE WHEN true THEN " * 3000}%%1%%{" END" * 3000}%%

-- expect: refused
SELECT %%{"NOT " * 9000}%%true

-- expect: refused
SELECT %%{"- " * 9000}%%1

-- expect: refused
SELECT %%{"~" * 9000}%%1

SELECT 1%%{"::INTEGER" * 4000}%%

SELECT 1%%{" + 1" * 9000}%%

SELECT 'x'%%{" || 'x'" * 9000}%%

SELECT [1]%%{"[1]" * 4000}%%

SELECT attributes%%{".a" * 5000}%% FROM logs

-- expect: refused
SELECT %%{"(SELECT " * 3000}%%1%%{")" * 3000}%%

-- expect: refused
SELECT * FROM %%{"(SELECT * FROM " * 3000}%%logs%%{")" * 3000}%%

SELECT * FROM %%{"(SELECT * FROM " * 30}%%logs%%{")" * 30}%%

SELECT 1 %%{"UNION ALL SELECT 1 " * 4000}%%

SELECT 1 %%{"UNION SELECT 1 " * 4000}%%

SELECT 1 %%{"EXCEPT SELECT 1 " * 3000}%%

SELECT count(*) FROM range(2) a0 %%{", range(2) a{n}" * 60}%%

-- engine: both
SELECT count(*) FROM logs WHERE %%{"message = 'x{n}'" * 4000 by " OR "}%%

SELECT count(*) FROM logs WHERE %%{"severity_number = {n}" * 5000 by " OR "}%%

SELECT count(*) FROM logs WHERE %%{"severity_number = {n}" * 10000 by " OR "}%%

SELECT count(*) FROM logs WHERE %%{"NOT (severity_number = {n} OR flags = {n})" * 1200 by " AND "}%%

SELECT count(*) FROM logs WHERE severity_number IN (%%{"{n}" * 9000 by ", "}%%)

SELECT count(*) FROM logs WHERE severity_number IN (%%{"{n}" * 60000 by ", "}%%)

SELECT count(*) FROM logs WHERE message IN (%%{"'{n}'" * 9000 by ", "}%%)

SELECT count(*) FROM logs WHERE message NOT IN (%%{"'{n}'" * 9000 by ", "}%%) AND trace_id NOT IN ('x')

SELECT count(*) FROM logs WHERE attributes['a'] IN (%%{"'{n}'" * 5000 by ", "}%%)

SELECT count(*) FROM logs WHERE %%{"attributes['k{n}'] = 'v'" * 2000 by " OR "}%%

SELECT %%{"message AS m{n}" * 5000 by ", "}%% FROM logs

SELECT %%{"sum(severity_number + {n})" * 2500 by ", "}%% FROM logs

SELECT CASE %%{"WHEN severity_number = {n} THEN {n} " * 3000}%% END FROM logs

-- parameters: ["%%{"x" * 60000}%%"]
SELECT count(*) FROM logs WHERE message LIKE $1

-- parameters: ["%%{"x" * 900000}%%"]
SELECT count(*) FROM logs WHERE message = $1

SELECT count(*) FROM logs WHERE message = '%%{"x" * 900000}%%'

-- expect: refused
SELECT count(*) FROM logs WHERE message = '%%{"x" * 1200000}%%'

WITH %%{"c{n} AS (SELECT {n} AS x)" * 2000 by ", "}%% SELECT * FROM c1

WITH c0 AS (SELECT 1 AS x), %%{"c{n} AS (SELECT a.x FROM c{p} a, c{p} b)" * 40 by ", "}%% SELECT * FROM c40

WITH c0 AS (SELECT 1 AS x), %%{"c{n} AS (SELECT (SELECT max(x) FROM c{p}) + (SELECT min(x) FROM c{p}) AS x)" * 22 by ", "}%% SELECT * FROM c22

WITH c0 AS NOT MATERIALIZED (SELECT 1 AS x), %%{"c{n} AS NOT MATERIALIZED (SELECT a.x + b.x AS x FROM c{p} a, c{p} b)" * 20 by ", "}%% SELECT * FROM c20

-- engine: both
SELECT count(*) FROM range(30000) a, range(30000) b WHERE a.range::VARCHAR LIKE '%' || b.range::VARCHAR || '%'

SELECT count(*) FROM range(1000000) a ASOF JOIN range(1000000) b ON a.range >= b.range

SELECT sum(sha256(range::VARCHAR)::HUGEINT) FROM range(1000000)

SELECT count(*) FROM logs WHERE message ~ '(a+)+$'

SELECT count(*) FROM logs WHERE message ~ '(.*)*(.*)*(.*)*(.*)*(.*)*(.*)*x'

SELECT count(*) FROM logs WHERE message ~ '(((a{100}){100}){100}){100}'

SELECT count(*) FROM logs WHERE message ~ '%%{"(a?)" * 1000}%%%%{"a" * 1000}%%'

SELECT count(*) FROM logs WHERE message ~ '%%{"(" * 2000}%%a%%{")" * 2000}%%'

SELECT count(*) FROM logs WHERE message ~ '[[:alpha:]-\d\p{L}]{1,1000}'

SELECT count(*) FROM logs WHERE message ~ '%%{"x{n}" * 9000 by "|"}%%'

SELECT count(*) FROM logs WHERE message ~ '(?<=a)b(?!c)\1'

SELECT regexp_matches(string_agg('a', ''), '(a|aa)+$') FROM range(1000000)

SELECT regexp_extract(string_agg('a', ''), '(x+x+)+y') FROM range(1000000)

SELECT regexp_replace(string_agg('a', ''), '(a*)*b', '') FROM range(1000000)

SELECT count(*) FROM logs WHERE message LIKE '%%{"%a" * 5000}%%'

SELECT count(*) FROM logs WHERE message LIKE '%%{"%_" * 5000}%%' ESCAPE '_'

SELECT count(*) FROM logs WHERE message SIMILAR TO '(a|b)*%%{"(c|d)?" * 1000}%%'

SELECT count(*) FROM logs WHERE message GLOB '%%{"*[a-z]" * 3000}%%'

SELECT string_agg('a', '') LIKE '%a%a%a%a%a%a%a%a%a%b' FROM range(100000)

SELECT count(*) FROM logs WHERE search('%%{"a" * 50000}%%')

SELECT nfc_normalize('%%{"́" * 20000}%%a')

SELECT strip_accents('%%{"é" * 30000}%%')

SELECT lcm(range, range + 1), gcd(range, range + 1), nextafter(range::DOUBLE, 1e308) FROM range(1000000)

SELECT * FROM logs LIMIT 9223372036854775807 OFFSET 9223372036854775807

SELECT * FROM logs LIMIT -1

SELECT * FROM logs LIMIT 1e300

SELECT * FROM range(0, 9223372036854775807, 9223372036854775806)

SELECT * FROM range(-9223372036854775808, 9223372036854775807, 1)

SELECT * FROM generate_series(TIMESTAMP '-infinity', TIMESTAMP 'infinity', INTERVAL 1 YEAR)

SELECT * FROM generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2025-01-01', INTERVAL 0 SECOND)

SELECT * FROM generate_series(DATE '0001-01-01', DATE '9999-12-31', INTERVAL 1 MONTH)

-- engine: both
SELECT regexp_matches('%%{"a" * 60}%%!', '^(a+)+$')

-- engine: both
SELECT regexp_matches('%%{"a" * 60}%%!', '^(a|aa)+$'), regexp_replace('%%{"a" * 60}%%!', '^(a+)+$', '')

-- engine: both
SELECT regexp_extract('%%{"x" * 1000}%%', '(x+x+)+y'), '%%{"a" * 60}%%!' SIMILAR TO '(a|a)*b'

-- engine: both
SELECT count(*) FROM logs WHERE message || '%%{"a" * 60}%%!' ~ '(.*a){25}b' OR message LIKE '%a%a%a%a%a%a%a%a%a%a%b'

-- Without end: only the time limit ends it. Spark SQL runs it whole.

-- engine: both
-- expect: late
SELECT count(*) FROM logs a0%%{", logs a{n}" * 13}%% WHERE length(a0.message || a13.message) > 3
