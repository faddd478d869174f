-- name: lock
-- Held to the end of the transaction: of several processes that start at once, one migrates and the others wait.
SELECT pg_advisory_xact_lock(hashtextextended('lrdb.migrations', 0))

-- name: exists
SELECT to_regclass('lrdb.migrations') IS NOT NULL

-- name: create
CREATE SCHEMA lrdb;
CREATE TABLE lrdb.migrations (
    name       text PRIMARY KEY,
    checksum   text NOT NULL,               -- SHA-256 of the migration's text, hex
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: applied
SELECT name, checksum FROM lrdb.migrations ORDER BY name COLLATE "C"

-- name: record
INSERT INTO lrdb.migrations (name, checksum) VALUES (%(name)s, %(checksum)s)
