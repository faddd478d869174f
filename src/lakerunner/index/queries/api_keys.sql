-- name: create
INSERT INTO lrdb.api_keys (organization, name, hash) VALUES (%(organization)s, %(name)s, %(hash)s)
ON CONFLICT (organization, name) DO NOTHING

-- name: list
SELECT organization, name, created_at, revoked_at FROM lrdb.api_keys
WHERE organization = %(organization)s ORDER BY created_at, name

-- name: revoke
-- A key that is revoked already keeps its first date.
UPDATE lrdb.api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE organization = %(organization)s AND name = %(name)s

-- name: organization_of
SELECT o.id, o.name FROM lrdb.api_keys AS k JOIN lrdb.organizations AS o ON o.id = k.organization
WHERE k.hash = %(hash)s AND k.revoked_at IS NULL
