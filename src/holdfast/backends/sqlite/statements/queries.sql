-- take
-- The short way in: grant a free lock that nobody waits for, or confirm a hold that is not over.
UPDATE lock SET
    token = CASE WHEN holder = :holder THEN token ELSE max(token + 1, :micros) END,
    since = CASE WHEN holder = :holder THEN since ELSE :micros / 1e6 END,
    tie = CASE WHEN holder = :holder THEN tie ELSE 'both' END,
    expires = CASE WHEN holder = :holder THEN max(expires, :expires) ELSE :expires END,
    holder = :holder, client = :client, about = :about
WHERE name = :name
  AND CASE WHEN holder IS NULL
           THEN NOT EXISTS (SELECT 1 FROM waiter WHERE waiter.name = :name)
           ELSE holder = :holder AND (tie = 'life' OR expires > :now) END
  AND NOT EXISTS (SELECT 1 FROM grave WHERE grave.holder = :holder)
RETURNING token

-- drop
-- The short way out: free a lock that nobody waits for.
UPDATE lock SET holder = NULL
WHERE name = :name AND holder = :holder
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE waiter.name = :name)
RETURNING 1

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
