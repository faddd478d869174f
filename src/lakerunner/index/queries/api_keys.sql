-- name: create
INSERT INTO lrdb.api_keys (organization, name, hash, roles)
VALUES (%(organization)s, %(name)s, %(hash)s, %(roles)s)
ON CONFLICT (organization, name) DO NOTHING

-- name: count
SELECT count(*) FROM lrdb.api_keys WHERE organization = %(organization)s

-- name: list
SELECT organization, name, roles, created_at, rotated_at, previous_until, revoked_at FROM lrdb.api_keys
WHERE organization = %(organization)s ORDER BY created_at, name

-- name: rotate
-- The previous secret stays valid for the grace time; an older one is deleted.
UPDATE lrdb.api_keys
SET hash = %(hash)s, rotated_at = now(), previous_hash = hash, previous_until = now() + %(grace)s
WHERE organization = %(organization)s AND name = %(name)s AND revoked_at IS NULL

-- name: revoke
-- A key that is already revoked keeps its first date.
UPDATE lrdb.api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE organization = %(organization)s AND name = %(name)s

-- name: find
-- The last column is how many more seconds it is valid, null for the current secret.
SELECT o.id, o.name, k.name, k.roles, o.queries_per_second, o.concurrent_queries,
       CASE WHEN k.hash = %(hash)s THEN NULL ELSE extract(epoch FROM k.previous_until - now())::double precision END
FROM lrdb.api_keys AS k JOIN lrdb.organizations AS o ON o.id = k.organization
WHERE k.revoked_at IS NULL
  AND (k.hash = %(hash)s OR (k.previous_hash = %(hash)s AND now() < k.previous_until))
