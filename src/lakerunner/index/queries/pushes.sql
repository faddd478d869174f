-- Rows of lrdb.pushes are inserted and locked in the order of their digests, so that no two transactions wait for each
-- other in a ring.

-- name: claim
WITH object AS (
    INSERT INTO lrdb.push_objects (key) VALUES (%(key)s) RETURNING id
), mine AS (
    INSERT INTO lrdb.pushes (organization, signal, digest, object)
    SELECT %(organization)s, %(signal)s, digest, object.id
    FROM unnest(%(digests)s::bytea[]) AS digest CROSS JOIN object ORDER BY digest
    ON CONFLICT DO NOTHING
    RETURNING digest
)
SELECT object.id, ARRAY(SELECT digest FROM mine) FROM object

-- name: claimed
SELECT p.digest, o.id, o.key, o.stored, extract(epoch FROM now() - o.pushed_at)::float8
FROM lrdb.pushes AS p JOIN lrdb.push_objects AS o ON o.id = p.object
WHERE p.organization = %(organization)s AND p.signal = %(signal)s AND p.digest = ANY(%(digests)s::bytea[])

-- name: take_over
UPDATE lrdb.pushes AS p SET object = %(heir)s
WHERE p.organization = %(organization)s AND p.signal = %(signal)s AND p.digest IN (
    SELECT digest FROM lrdb.pushes
    WHERE organization = %(organization)s AND signal = %(signal)s
      AND digest = ANY(%(digests)s::bytea[]) AND object = %(holder)s
    ORDER BY digest FOR UPDATE)
RETURNING p.digest

-- name: stored
UPDATE lrdb.push_objects SET stored = true WHERE id = %(object)s

-- name: forget
-- Ids grow with time: the oldest rows are the first, so there is no index on pushed_at.
WITH oldest AS MATERIALIZED (
    SELECT id, pushed_at FROM lrdb.push_objects ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM lrdb.push_objects AS o USING oldest
WHERE o.id = oldest.id AND oldest.pushed_at < now() - make_interval(secs => %(seconds)s)
