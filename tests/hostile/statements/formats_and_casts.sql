-- Format specifiers and odd values: an answer or a refusal, never a crash of the engine.

-- engine: both
SELECT strftime(timestamp, '%Y-%m-%d %H:%M:%S.%f %n %g %z %Z %j %U %W %a %A %b %B %p %I %y %c %x %X %u %w %G %V %%') FROM logs

SELECT strftime(timestamp, '%') FROM logs

SELECT strftime(timestamp, '%q%Q%!%-%_%0%E%O') FROM logs

SELECT strftime(timestamp, '%-d%-m%-H%-I%-M%-S%-j%-y') FROM logs

SELECT strftime(timestamp, '%%{"%" * 9999}%%') FROM logs

SELECT strftime(timestamp, '%%{"%f" * 9999}%%') FROM logs

SELECT strftime(timestamp, message) FROM logs

SELECT strftime('%Y', timestamp) FROM logs

SELECT strftime(DATE '-infinity', '%Y'), strftime(DATE 'infinity', '%j')

SELECT strftime(TIMESTAMP '290309-12-22 (BC) 00:00:00', '%Y-%U-%W-%G-%V')

SELECT strftime(TIMESTAMP '294247-01-10 04:00:54.775806', '%Y %n')

SELECT strftime(make_date(5881580, 7, 10), '%Y'), strftime(make_date(-5877641, 6, 25), '%A')

SELECT strptime('2024-01-01', '%Y-%m-%d %%{"%d" * 3000}%%')

SELECT strptime('99999999999', '%Y'), try_strptime('x', '%Y')

SELECT strptime('2024', message) FROM logs

SELECT try_strptime(message, ['%Y', '%', '%q', '']) FROM logs

SELECT strptime('2024-366', '%Y-%j'), strptime('0000', '%Y')

SELECT strptime('1 1 1 1', '%U %W %u %G'), strptime('+99:99', '%z')

SELECT try_strptime('24:61:61.999999999999', '%H:%M:%S.%n')

SELECT strptime(NULL, NULL), strftime(NULL::TIMESTAMP, '%Y')

SELECT format('{}', 1, 2, 3), format('{}{}', 1)

SELECT format('{0}{9}', 1)

SELECT format('{:d}', 'x'), format('{:s}', 1)

SELECT format('{:{}}', 1, 1000000000)

SELECT format('{:c}', 1114112)

SELECT format('{:c}', -1)

SELECT format('{:.999f}', 1e308), format('{:.1000f}', 1.5)

SELECT format('{:-^999}', 'x'), format('{:L}', 123456789)

SELECT format('{a}', 1), format('{', 1), format('}', 1), format('{:}', 1), format('{!r}', 1)

SELECT format('{:n}{:p}{:a}{:#x}{:e}', 1, 2, 3.0, 4, 5.0)

SELECT format(message, message) FROM logs

SELECT printf('%n', 1), printf('%s')

SELECT printf('%n%n%n%n', 1, 2, 3, 4)

SELECT printf('%s%s%s%s%s%s%s%s')

SELECT printf('%p %x %hn', 1, 2, 3)

SELECT printf('%1$s %2$s %999$s', 'a', 'b')

SELECT printf('%-999d|%+.999e', 1, 1.0)

SELECT printf('%.999999999f', 1.0)

SELECT printf('%99999999999999999999d', 1)

SELECT printf('%d', 'x'), printf('%s', 1), printf('%c', 0), printf('%lc', 1114112)

SELECT printf(message) FROM logs

SELECT format_bytes(-9223372036854775808), format_bytes(9223372036854775807)

SELECT chr(0)

SELECT chr(1114112), chr(-1), chr(55296)

SELECT chr(range::INTEGER) FROM range(55290, 57350)

SELECT unicode(''), ascii(''), ord(chr(1114111))

SELECT decode('\xff\xfe'::BLOB), encode(chr(1114111))

SELECT decode(from_hex('c0af')), from_hex('zz'), unhex('f'), from_base64('=')

SELECT url_decode('%ff%00%'), url_encode(chr(0))

SELECT '\x00\xff'::BLOB::VARCHAR, 'x'::BLOB::BIT

SELECT ''::UUID, 'x'::UUID, '00000000-0000-0000-0000-00000000000g'::UUID

SELECT try_cast(message AS UUID), try_cast(message AS BLOB) FROM logs

SELECT '{"a":'::JSON, try_cast('[[[' AS JSON)

SELECT '%%{"[" * 20000}%%%%{"]" * 20000}%%'::JSON

SELECT json('%%{"{\"a\":" * 5000}%%1%%{"}" * 5000}%%')

SELECT json_extract('%%{"[" * 20000}%%%%{"]" * 20000}%%', '$%%{"[0]" * 5000}%%')

SELECT json_valid('%%{"[" * 30000}%%'), json_structure('%%{"[" * 5000}%%%%{"]" * 5000}%%')

SELECT json_extract('{"a": 1}', '$..a'), json_extract('[1,2]', '$[#-1]'), json_extract('{}', '/a/b'), json_extract('{}', 'a')

SELECT json_extract('{}', '$.%%{"a." * 5000}%%a')

SELECT json_extract('{"a": [1, 2]}', '$.*'), json_extract('{"a": {"b": 1}}', '$.**.b')

SELECT json_transform('{"a": 1}', '{"a": "NOSUCH"}'), json_transform('{}', '[')

SELECT json_transform('{"a": 1}', '{"a": ["STRUCT(x INTEGER[1000000000])"]}')

SELECT from_json('[1]', '["ENUM(''a'')"]'), from_json('1', '"/etc/passwd"')

SELECT json_merge_patch('{"a":1}', NULL, '[', '{"a":null}')

SELECT json_object('a'), json_object('a', 1, 'a', 2), json_array()

SELECT json_value('{"a": "\ud800"}', '$.a'), json_extract_string('"\ud800\udc00"', '$')

SELECT 'infinity'::TIMESTAMP - '-infinity'::TIMESTAMP

SELECT 'infinity'::DATE + 1, 'infinity'::TIMESTAMP + INTERVAL 1 DAY

SELECT date_trunc('century', TIMESTAMP '-infinity'), date_part('epoch', DATE 'infinity')

SELECT date_diff('microsecond', TIMESTAMP '290309-12-22 (BC) 00:00:00', TIMESTAMP '294247-01-10 04:00:54.775806')

SELECT time_bucket(INTERVAL 0 SECOND, timestamp) FROM logs

SELECT time_bucket(INTERVAL '-1 day', timestamp), time_bucket(INTERVAL 1 MONTH, timestamp, INTERVAL 1 DAY) FROM logs

SELECT time_bucket(INTERVAL 1 MONTH + INTERVAL 1 DAY, timestamp) FROM logs

SELECT date_trunc('%%{"x" * 10000}%%', timestamp) FROM logs

SELECT date_part(['year', 'nosuch'], timestamp) FROM logs

SELECT INTERVAL '178000000 years', INTERVAL '-2147483648 months', to_years(2147483647), to_days(-2147483648)

SELECT INTERVAL 9223372036854775807 MICROSECOND + INTERVAL 1 MICROSECOND

SELECT to_seconds(1e308), to_milliseconds(9223372036854775807), to_millennia(2147483647)

SELECT INTERVAL '1' NOSUCH

SELECT INTERVAL (severity_number) DAY * 1e300 FROM logs

SELECT to_timestamp(1e308), to_timestamp('nan'::DOUBLE), to_timestamp('-inf'::DOUBLE)

SELECT make_timestamp(9223372036854775807), make_timestamp_ns(-9223372036854775808), make_timestamp_ms(9223372036854775807)

SELECT make_date(2147483647, 1, 1), make_date(2024, 13, 32), make_time(25, 61, 1e308)

SELECT epoch_ns(TIMESTAMP '294247-01-10'), epoch_ms(9223372036854775807), epoch_us(DATE '5881580-07-10')

SELECT DATE '5881580-07-11', DATE '-5877642-06-24'

SELECT TIMESTAMP '2024-02-30 00:00:00', TIME '24:00:00.000001', TIMESTAMPTZ '2024-01-01 00:00:00+99'

SELECT timestamp AT TIME ZONE 'Nowhere/No' FROM logs

SELECT timestamp AT TIME ZONE '{{home}}' FROM logs

SELECT timezone('../../../etc/passwd', now())

SELECT timezone(INTERVAL 1000000 HOUR, now())

SELECT message COLLATE "nosuch" FROM logs

SELECT message COLLATE NOCASE.NOACCENT.NFC FROM logs ORDER BY 1

SELECT 1e400, -1e400, 1e-400

SELECT 'nan'::DOUBLE = 'nan'::DOUBLE, 'nan'::FLOAT < 'inf'::FLOAT, -0.0::DOUBLE

SELECT 'inf'::DOUBLE::BIGINT

SELECT 'nan'::DOUBLE::DECIMAL(38, 10), 1e38::DECIMAL(38, 37)

SELECT 1::DECIMAL(39, 1)

SELECT 1::DECIMAL(0, 0), 1::DECIMAL(1, 2), 1::DECIMAL(99999999999)

SELECT 99999999999999999999999999999999999999::DECIMAL(38, 0) * 10

SELECT -9223372036854775808 / -1, -9223372036854775808 % -1, -9223372036854775808 // -1

SELECT (-170141183460469231731687303715884105727 - 1)::HUGEINT // -1

SELECT abs(-9223372036854775808), -(-9223372036854775808), (-128)::TINYINT // (-1)::TINYINT

SELECT 1 / 0, 1 % 0, 1 // 0, 1.0 / 0, 0.0 / 0, fmod(1, 0), mod(1, 0), fdiv(1, 0)

SELECT 1 << 63, 1 << 64, 1 << -1, -1 << 1, 1 >> 1000, (1::HUGEINT) << 127

SELECT gcd(-9223372036854775808, -1), lcm(9223372036854775807, 9223372036854775806)

SELECT factorial(-1), factorial(34), factorial(2147483647)

SELECT round(1.5, 2147483647), round(1.5, -2147483648), trunc(1e308, 400), round_even(2.5, 100)

SELECT sqrt(-1), ln(0), ln(-1), log(0, 0), acos(2), asin('nan'), pow(0, -1), atan2(0, 0), cot(0)

SELECT bit_count(-170141183460469231731687303715884105727::HUGEINT), xor(-1, 9223372036854775807)

SELECT substring(message, -9223372036854775808, 9223372036854775807) FROM logs

SELECT substr('abc', 9223372036854775807, -9223372036854775808), left('abc', -9223372036854775808), right('abc', -9223372036854775807)

SELECT 'abc'[-9223372036854775808:9223372036854775807], 'abc'[9223372036854775807], ''[0]

SELECT [1, 2, 3][-9223372036854775808:9223372036854775807:-1]

SELECT [1, 2, 3][1:3:0], list_slice([1, 2], 1, 2, -9223372036854775808)

SELECT array_extract([1], 9223372036854775807), list_element([1], -9223372036854775808), element_at(MAP {1: 2}, NULL)

SELECT split_part('a,b', ',', 9223372036854775807), split_part('a', '', -2147483648)

SELECT instr('', ''), strpos('x', ''), position('' IN ''), string_split('', ''), replace('', '', 'x')

SELECT lpad('x', 10, ''), rpad('', 1000, ''), lpad('x', -5, 'y')

SELECT list_where([1, 2], [true]), list_select([1, 2], [99999999999, -1, NULL]), list_zip([1], [1, 2, 3], true)

SELECT list_sort([1, NULL, 2], 'NOSUCH'), list_sort(['a'], 'DESC', 'nosuch'), list_reverse_sort([NULL])

SELECT list_reduce([], lambda a, b: a), list_reduce([NULL, 1], lambda a, b: a + b)

SELECT map([1, 1], [2, 3])

SELECT map([NULL], [1])

SELECT map([1], [1, 2]), map_from_entries([(1, 2), (1, 3)])

SELECT MAP {'a': 1}['b'], MAP {}[1], map_extract(attributes, NULL) FROM logs

SELECT struct_extract({'a': 1}, 'b'), struct_extract({'a': 1}, 99)

SELECT struct_pack(a := 1, a := 2), {'a': 1, 'A': 2}, struct_insert({'a': 1}, a := 2)

SELECT struct_concat({'a': 1}, {'a': 2}), struct_keys({}), row()

SELECT flatten([[[1]], NULL, []]), unnest([]), unnest(NULL), unnest([[], [NULL]])

SELECT unnest({'a': 1, 'b': [1, 2]}, recursive := true)

SELECT unnest([{'a': [[1]]}], max_depth := 1000000000)

SELECT NULL::STRUCT(a INTEGER, a INTEGER), NULL::MAP(INTEGER, INTEGER)[][][][][][]

SELECT NULL::%%{"STRUCT(a " * 300}%%INTEGER%%{")" * 300}%%

SELECT NULL::INTEGER%%{"[]" * 3000}%%

SELECT typeof(NULL::%%{"MAP(VARCHAR, " * 100}%%INTEGER%%{")" * 100}%%)

SELECT hash(NULL), md5(NULL), sha1(''), hash({'a': [1, NULL]})

SELECT approx_quantile(value, 2), quantile_cont(value, -1), quantile_disc(value, [NULL]) FROM metrics

SELECT quantile_cont(value, 'nan'::DOUBLE), approx_quantile('inf'::DOUBLE, 0.5) FROM metrics

SELECT sum('inf'::DOUBLE) + sum('-inf'::DOUBLE), avg('nan'::DOUBLE), stddev('inf'::DOUBLE), kurtosis(1e308), skewness(-1e308) FROM logs

SELECT histogram(value, []), histogram(value, [NULL, 1]) FROM metrics

SELECT string_agg(message, NULL), string_agg(NULL, ','), listagg(message, chr(0)) FROM logs

SELECT approx_top_k(message, 0), approx_top_k(message, -1), approx_top_k(message, NULL) FROM logs

SELECT max(message, -1), min(message, 0), arg_max(message, timestamp, NULL) FROM logs

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY message) FROM logs

SELECT percentile_disc([0.5, 2]) WITHIN GROUP (ORDER BY value DESC) FROM metrics

SELECT regr_slope('inf'::DOUBLE, 1), corr('nan'::DOUBLE, 0), covar_pop(1e308, 1e308) FROM logs

SELECT try(1 / 0), try(CAST('x' AS INTEGER)), try(error('x'))

SELECT try(list_reduce([], lambda a, b: a)), try((SELECT 1 UNION ALL SELECT 2))

SELECT (SELECT 1 UNION ALL SELECT 2)

SELECT greatest(1, 'x'), least([1], [2], NULL), coalesce(1, 'x'), ifnull(NULL, DATE '2024-01-01'), nullif(1, 'a')

SELECT 1 IN ('x'), 1 = 'x', DATE '2024-01-01' > 1, [1] = 1, {'a': 1} = {'b': 1}, MAP {} = MAP {1: 1}
