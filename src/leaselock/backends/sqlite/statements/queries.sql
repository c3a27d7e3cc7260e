-- take
-- The short way in: grant a free lock to a claim that was not buried. Nobody waits for a free lock.
-- 1 name, 2 holder, 3 client, 4 about, 5 expires, 6 micros
UPDATE lock SET holder = ?2, client = ?3, tie = 'both', expires = ?5,
                about = ?4, since = ?6 / 1e6, token = ?6
WHERE name = ?1 AND holder IS NULL AND token < ?6

-- confirm
-- The short way from a hand-over to a whole lease: the hold is the claim's, and not over.
-- 1 name, 2 holder, 3 expires, 4 now
UPDATE lock SET expires = max(expires, ?3)
WHERE name = ?1 AND holder = ?2 AND (tie = 'life' OR expires > ?4)
RETURNING token

-- drop
-- The short way out: free a lock that nobody waits for.
-- 1 name, 2 holder
UPDATE lock SET holder = NULL
WHERE name = ?1 AND holder = ?2
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE waiter.name = ?1)

-- held
SELECT holder, client, tie, token, expires, about, since FROM lock
WHERE name = ? AND holder IS NOT NULL

-- grant
INSERT INTO lock (name, token, holder, client, tie, expires, about, since)
VALUES (:name, max(:micros, 1 + (SELECT CAST(value AS INTEGER) FROM fact WHERE key = 'floor')),
        :holder, :client, 'both', :expires, :about, :micros / 1e6)
ON CONFLICT (name) DO UPDATE SET
    token = max(lock.token + 1, :micros), holder = excluded.holder, client = excluded.client,
    tie = excluded.tie, expires = excluded.expires, about = excluded.about,
    since = excluded.since
RETURNING token

-- keep
UPDATE lock SET tie = ?, expires = ? WHERE name = ? AND holder = ?

-- free
UPDATE lock SET holder = NULL WHERE name = ?

-- first
SELECT name, holder, client, lease, about, since FROM waiter
WHERE name = ? ORDER BY ticket LIMIT 1

-- before
SELECT name, holder, client, lease, about, since FROM waiter
WHERE name = :name AND ticket < (SELECT ticket FROM waiter WHERE holder = :holder)
ORDER BY ticket DESC LIMIT 1

-- after
SELECT name, holder, client, lease, about, since FROM waiter
WHERE name = :name AND ticket > (SELECT ticket FROM waiter WHERE holder = :holder)
ORDER BY ticket LIMIT 1

-- queue
SELECT name, holder, client, lease, about, since FROM waiter WHERE name = ? ORDER BY ticket

-- join
INSERT INTO waiter (name, ticket, holder, client, lease, about, since)
VALUES (:name, 1 + coalesce((SELECT max(ticket) FROM waiter WHERE name = :name), 0),
        :holder, :client, :lease, :about, :since)
ON CONFLICT (holder) DO NOTHING

-- quit
DELETE FROM waiter WHERE holder = ?

-- buried
SELECT 1 FROM grave WHERE holder = ?

-- bury
INSERT INTO grave (holder, until) VALUES (?, ?)
ON CONFLICT (holder) DO UPDATE SET until = excluded.until

-- weed
DELETE FROM grave WHERE until <= ?

-- names
SELECT name FROM lock WHERE holder IS NOT NULL UNION SELECT name FROM waiter ORDER BY name

-- clients
SELECT client FROM lock WHERE holder IS NOT NULL UNION SELECT client FROM waiter

-- fact
SELECT value FROM fact WHERE key = ?

-- state
INSERT INTO fact (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- forget holds
UPDATE lock SET holder = NULL WHERE holder IS NOT NULL

-- forget waiters
DELETE FROM waiter

-- forget graves
DELETE FROM grave

-- raise floor
UPDATE fact SET value = max(CAST(value AS INTEGER), coalesce(
    (SELECT max(token) FROM lock WHERE holder IS NULL AND since < ?), 0))
WHERE key = 'floor'

-- prune
DELETE FROM lock WHERE holder IS NULL AND since < ?
