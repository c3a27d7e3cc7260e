-- take
-- The fast path: grant a free lock to a claim without a tombstone. A free lock has no waiters.
-- 1 name, 2 id, 3 client, 4 metadata, 5 expires, 6 micros
UPDATE lock SET id = ?2, client = ?3, lifetime = 'either', expires = ?5,
                metadata = ?4, since = ?6 / 1e6, token = ?6
WHERE name = ?1 AND id IS NULL AND token < ?6

-- confirm
-- The fast path from a provisional grant to a whole lease, if the hold is the claim's and has not expired.
-- 1 name, 2 id, 3 expires, 4 now
UPDATE lock SET expires = max(expires, ?3)
WHERE name = ?1 AND id = ?2 AND (lifetime = 'client' OR expires > ?4)
RETURNING token

-- drop
-- The fast path: release a lock without waiters.
-- 1 name, 2 id
UPDATE lock SET id = NULL
WHERE name = ?1 AND id = ?2
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE waiter.name = ?1)

-- held
SELECT id, client, lifetime, token, expires, metadata, since FROM lock
WHERE name = ? AND id IS NOT NULL

-- grant
INSERT INTO lock (name, token, id, client, lifetime, expires, metadata, since)
VALUES (:name, max(:micros, 1 + (SELECT CAST(value AS INTEGER) FROM fact WHERE key = 'floor')),
        :id, :client, 'either', :expires, :metadata, :micros / 1e6)
ON CONFLICT (name) DO UPDATE SET
    token = max(lock.token + 1, :micros), id = excluded.id, client = excluded.client,
    lifetime = excluded.lifetime, expires = excluded.expires, metadata = excluded.metadata,
    since = excluded.since
RETURNING token

-- keep
UPDATE lock SET lifetime = ?, expires = ? WHERE name = ? AND id = ?

-- free
UPDATE lock SET id = NULL WHERE name = ?

-- first
SELECT name, id, client, lease, metadata, since FROM waiter
WHERE name = ? ORDER BY ticket LIMIT 1

-- before
SELECT name, id, client, lease, metadata, since FROM waiter
WHERE name = :name AND ticket < (SELECT ticket FROM waiter WHERE id = :id)
ORDER BY ticket DESC LIMIT 1

-- after
SELECT name, id, client, lease, metadata, since FROM waiter
WHERE name = :name AND ticket > (SELECT ticket FROM waiter WHERE id = :id)
ORDER BY ticket LIMIT 1

-- queue
SELECT name, id, client, lease, metadata, since FROM waiter WHERE name = ? ORDER BY ticket

-- join
INSERT INTO waiter (name, ticket, id, client, lease, metadata, since)
VALUES (:name, 1 + coalesce((SELECT max(ticket) FROM waiter WHERE name = :name), 0),
        :id, :client, :lease, :metadata, :since)
ON CONFLICT (id) DO NOTHING

-- length
SELECT count(*) FROM waiter WHERE name = ?

-- quit
DELETE FROM waiter WHERE id = ?

-- has tombstone
SELECT 1 FROM tombstone WHERE id = ?

-- tombstone
INSERT INTO tombstone (id, until) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET until = excluded.until

-- expire tombstones
DELETE FROM tombstone WHERE until <= ?

-- names
SELECT name FROM lock WHERE id IS NOT NULL UNION SELECT name FROM waiter ORDER BY name

-- clients
SELECT client FROM lock WHERE id IS NOT NULL UNION SELECT client FROM waiter

-- fact
SELECT value FROM fact WHERE key = ?

-- state
INSERT INTO fact (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- forget holds
UPDATE lock SET id = NULL WHERE id IS NOT NULL

-- forget waiters
DELETE FROM waiter

-- forget tombstones
DELETE FROM tombstone

-- raise floor
UPDATE fact SET value = max(CAST(value AS INTEGER), coalesce(
    (SELECT max(token) FROM lock WHERE id IS NULL AND since < ?), 0))
WHERE key = 'floor'

-- prune
DELETE FROM lock WHERE id IS NULL AND since < ?
