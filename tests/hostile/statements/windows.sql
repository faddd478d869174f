-- Window frames with odd bounds.

SELECT sum(value) OVER (ORDER BY timestamp ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING) FROM metrics

SELECT sum(value) OVER (ORDER BY timestamp ROWS BETWEEN -1 PRECEDING AND -1 FOLLOWING) FROM metrics

SELECT sum(value) OVER (ORDER BY timestamp ROWS BETWEEN value PRECEDING AND value FOLLOWING) FROM metrics

SELECT sum(value) OVER (ORDER BY value RANGE BETWEEN 'nan'::DOUBLE PRECEDING AND 'inf'::DOUBLE FOLLOWING) FROM metrics

SELECT sum(value) OVER (ORDER BY timestamp RANGE BETWEEN INTERVAL 100000 YEAR PRECEDING AND INTERVAL 100000 YEAR FOLLOWING) FROM metrics

SELECT sum(value) OVER (ORDER BY value GROUPS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW) FROM metrics

SELECT sum(value) OVER (ORDER BY value ROWS BETWEEN UNBOUNDED FOLLOWING AND UNBOUNDED PRECEDING) FROM metrics

SELECT sum(value) OVER (ORDER BY value ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) FROM metrics

SELECT sum(value) OVER (ORDER BY value EXCLUDE TIES) FROM metrics

SELECT sum(value) OVER (ORDER BY value ROWS UNBOUNDED PRECEDING EXCLUDE GROUP) FROM metrics

SELECT nth_value(message, 0) OVER (), nth_value(message, -1) OVER (), nth_value(message, 9223372036854775807) OVER () FROM logs

SELECT lag(message, 9223372036854775807) OVER (ORDER BY timestamp), lead(message, -9223372036854775808) OVER (ORDER BY timestamp) FROM logs

SELECT ntile(0) OVER (), ntile(-1) OVER () FROM logs

SELECT ntile(9223372036854775807) OVER (ORDER BY timestamp) FROM logs

SELECT lag(message, NULL, message) OVER (ORDER BY timestamp) FROM logs

SELECT first_value(message IGNORE NULLS) OVER (PARTITION BY NULL ORDER BY NULL) FROM logs

SELECT sum(sum(value)) OVER (ORDER BY sum(value)) FROM metrics

SELECT sum(sum(value) OVER ()) OVER () FROM metrics

SELECT count(*) OVER w, sum(value) OVER (w ROWS 1 PRECEDING) FROM metrics WINDOW w AS (ORDER BY value), w AS (ORDER BY timestamp)

SELECT sum(value) OVER nosuch FROM metrics

SELECT row_number() OVER (PARTITION BY %%{"severity_number + {n}" * 1000 by ", "}%%) FROM logs

SELECT row_number() OVER (ORDER BY %%{"severity_number + {n}" * 1000 by ", "}%%) FROM logs

SELECT * FROM logs QUALIFY row_number() OVER (ORDER BY timestamp) = 1 AND sum(1) OVER () > 0

SELECT count(*) FILTER (WHERE count(*) OVER () > 1) FROM logs

SELECT sum(value) FILTER (WHERE (SELECT true)) OVER (ORDER BY timestamp) FROM metrics

SELECT string_agg(DISTINCT message, ',' ORDER BY timestamp) OVER (ORDER BY timestamp) FROM logs

SELECT list(value ORDER BY 'nan'::DOUBLE) OVER (ORDER BY value DESC NULLS LAST ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) FROM metrics

SELECT quantile_cont(value, [0.5]) OVER (ORDER BY value ROWS BETWEEN 1 FOLLOWING AND 5 FOLLOWING) FROM metrics

SELECT percent_rank() OVER (ORDER BY 1), cume_dist() OVER () FROM logs

SELECT rank(message) OVER (), dense_rank() FROM logs

SELECT row_number() OVER (ORDER BY [timestamp], {'a': message}, attributes) FROM logs

SELECT max(attributes) OVER (ORDER BY attributes), min([message]) OVER () FROM logs
