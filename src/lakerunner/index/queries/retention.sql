-- name: of
SELECT signal, frequency_ms, seconds FROM lrdb.retention WHERE organization = %(organization)s

-- name: all
SELECT organization, signal, frequency_ms, seconds FROM lrdb.retention

-- name: set
INSERT INTO lrdb.retention (organization, signal, frequency_ms, seconds)
VALUES (%(organization)s, %(signal)s, %(frequency_ms)s, %(seconds)s)
ON CONFLICT (organization, signal, frequency_ms) DO UPDATE SET seconds = EXCLUDED.seconds

-- name: clear
DELETE FROM lrdb.retention
WHERE organization = %(organization)s AND signal = %(signal)s AND frequency_ms = %(frequency_ms)s
