-- Odd characters, parameters and requests.

-- expect: refused
SELECT '%%{"\u0000" * 1}%%'

-- expect: refused
-- parameters: ["\u0000"]
SELECT $1

-- expect: refused
-- parameters: ["\ud800"]
SELECT $1

-- expect: refused
-- parameters: {"a": ["x", "\udfff"]}
SELECT 1 FROM logs WHERE message IN $a

-- engine: both
-- expect: rows
SELECT '‮gnp.exe' AS "‮x", chr(8238) AS y

SELECT '﻿', chr(65279), chr(8203), '​'

-- parameters: ["‮\u200b\ufeff\ufffe\uffff"]
SELECT $1

SELECT '%%{"\u202e" * 10000}%%'

SELECT '%%{"𒐫" * 10000}%%'

SELECT '%%{"👩‍👩‍👧‍👦" * 3000}%%', reverse('%%{"👩‍👩‍👧‍👦" * 3000}%%')

SELECT 'ﷺ', upper('ß'), lower('İ'), upper('ŉ'), lower('ẞ')

SELECT sеlect FROM logs

SELECT messаge FROM logs

ＳＥＬＥＣＴ 1

SELECT 1 AS "%%{"x" * 60000}%%"

SELECT 1 AS ""

SELECT 1 AS "
"

SELECT 1 AS "a", 2 AS "a", 3 AS "A", 4 AS "a_1"

-- body: {"format": "parquet"}
SELECT 1 AS "a", 2 AS "a", 3 AS "A", 4 AS "a_1"

-- body: {"format": "arrow"}
SELECT 1 AS "", '‮' AS "‮"

-- body: {"format": "csv"}
SELECT '=cmd|''/c calc''!A1' AS "=1+1", '"' AS """", E'\r\n'

-- body: {"format": "csv"}
SELECT '=cmd|''/c calc''!A1' AS "=1+1", '"' AS """", chr(13) || chr(10)

-- body: {"format": "sse"}
SELECT 'a' || chr(10) || chr(10) || 'data: {"type": "done"}' AS x

-- body: {"format": "ndjson"}
SELECT chr(10) || '{"error": {}}' AS "x
{"

-- body: {"format": "parquet"}
SELECT INTERVAL 1 DAY, NULL, [], {}, MAP {}

-- body: {"format": "arrow"}
SELECT INTERVAL 1 DAY, NULL, [], MAP {}, 1::HUGEINT, '00000000-0000-0000-0000-000000000000'::UUID, TIME '24:00:00'

-- body: {"format": "nosuch"}
SELECT 1

-- body: {"engine": "nosuch"}
SELECT 1

-- body: {"engine": ["duckdb"]}
SELECT 1

-- body: {"query": 1}
SELECT 1

-- body: {"query": null}
SELECT 1

-- body: {"query": ""}
SELECT 1

-- body: {"partial": "yes"}
SELECT 1

-- body: {"parameters": "x"}
SELECT 1

-- body: {"__proto__": 1, "constructor": {}}
SELECT 1

-- parameters: {"": 1}
SELECT $1

-- parameters: {"1": 1, "01": 2, "+1": 3}
SELECT $1

-- parameters: {"a b": 1}
SELECT $a

-- parameters: {"A": 1, "a": 2}
SELECT $a, $A

-- parameters: {"a'; DROP TABLE logs; --": 1}
SELECT $a

-- parameters: {"a": "'; DROP TABLE logs; --"}
-- expect: rows
SELECT $a

-- parameters: {"a": "') UNION ALL SELECT * FROM read_text('/etc/passwd') --"}
SELECT message FROM logs WHERE message = $a

-- parameters: {"a": 1e999}
SELECT $a

-- parameters: {"a": -0.0, "b": 1e308, "c": 18446744073709551616}
SELECT $a, $b, $c

-- parameters: {"a": 123456789012345678901234567890123456789012345678901234567890}
SELECT $a

-- parameters: {"a": {"b": 1}}
SELECT $a

-- parameters: {"a": [[1]]}
SELECT 1 FROM logs WHERE flags IN $a

-- parameters: {"a": []}
SELECT 1 FROM logs WHERE flags IN $a

-- parameters: {"a": [null, true, "x", 1.5]}
SELECT 1 FROM logs WHERE flags IN $a

-- parameters: {"a": "logs"}
SELECT * FROM $a

-- parameters: {"a": "message"}
SELECT message AS $a FROM logs ORDER BY $a LIMIT $a

-- parameters: {"a": 9223372036854775807}
SELECT message FROM logs LIMIT $a OFFSET $a

-- parameters: {"a": "%Y%%{"%" * 1}%%"}
SELECT strftime(timestamp, $a) FROM logs

-- parameters: {"a": "{:1000000000d}"}
SELECT format($a, 1)

-- parameters: {"a": 1000000000}
SELECT lpad('x', $a, 'y')

-- parameters: {"a": 1000000000}
SELECT * FROM range($a)

-- parameters: {"a": "(a+)+$"}
SELECT count(*) FROM logs WHERE message ~ $a

-- parameters: {"a": "["}
SELECT count(*) FROM logs WHERE message ~ $a

-- parameters: {"a": "\\"}
SELECT count(*) FROM logs WHERE message LIKE $a ESCAPE $a

-- parameters: {"a": "America/../../etc/passwd"}
SELECT timestamp AT TIME ZONE $a FROM logs

SELECT $0

SELECT $99999999999999999999

SELECT $$$$, $a$x$a$

SELECT ?::INTEGER, ?2, ?:x

SELECT {{{1}}}

SELECT 1 -- comment

SELECT 1 /* nested /* comment */ */

SELECT 1 /* open

SELECT 'a' 'b', 'a'
'b'

SELECT U&'\0041', X'00', B'01', N'x', 0b1, 0o7, 0xff, 1_000, .5, 5., 1e, 1e+

SELECT @, #, !, `x`, \, ::, ->, :=, =>, <=>, ~~~, @@, ^@

SELECT 1 WHERE 1 == 1 AND 1 <> 2 AND 1 != 2 AND 1 ^ 2 AND 2 ** 3

SELECT * EXCLUDE (message, nosuch) FROM logs

SELECT * REPLACE (message || message AS message, 1 AS nosuch) FROM logs

SELECT * EXCLUDE (message) REPLACE (1 AS message) FROM logs

SELECT logs.message.x.y.z FROM logs

SELECT message FROM logs ORDER BY ALL DESC NULLS FIRST

SELECT message FROM logs GROUP BY ALL HAVING count(*) > (SELECT count(*) FROM logs)

SELECT DISTINCT ON (message) * FROM logs ORDER BY timestamp

SELECT a.message FROM logs a JOIN logs b USING (message) JOIN logs c USING (message)

SELECT * FROM logs a LEFT JOIN LATERAL (SELECT a.message || b.message FROM logs b WHERE b.trace_id = a.trace_id) x ON true

SELECT * FROM logs WHERE timestamp > '1677-09-21T00:12:43.145224193Z' AND timestamp < '2262-04-11T23:47:16.854775807Z'

SELECT * FROM logs WHERE timestamp > '9999999-01-01' OR timestamp < '-9999999-01-01'

SELECT * FROM logs WHERE timestamp BETWEEN now() - INTERVAL 1000000 YEAR AND now() + INTERVAL 1000000 YEAR

SELECT * FROM logs WHERE timestamp > ago(INTERVAL 9223372036854775807 MICROSECOND)

SELECT * FROM logs WHERE timestamp > to_timestamp(1e308)

SELECT * FROM logs WHERE timestamp > make_timestamp_ns(9223372036854775808)

SELECT * FROM logs WHERE trace_id = '%%{"f" * 60000}%%'

SELECT * FROM logs WHERE trace_id IN ('', 'g', '0', NULL, 'zz')

SELECT attributes[''], attributes[NULL], attributes[1], attributes['%%{"k" * 30000}%%'] FROM logs

SELECT "‮", "a.b.c", "", "%%{"k." * 10000}%%x" FROM logs
