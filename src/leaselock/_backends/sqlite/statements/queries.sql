-- take
-- The fast path: grant a free lock without watchers to an exclusive claim without a tombstone. The waiters of
-- a free lock, if there are any, are passed over.
UPDATE lock SET id = ?, client = ?, lifetime = 'either', expires = ?,
                metadata = ?, since = ? / 1e6, token = ?, step = 0, offered = 0, free_from = 0
WHERE name = ? AND id IS NULL AND token < ?
  AND NOT EXISTS (SELECT 1 FROM watcher WHERE watcher.name = lock.name)

-- confirm
-- The fast path that extends a hold: from a provisional grant to a whole lease, and with each renewal.
UPDATE lock SET expires = max(expires, ?), offered = 0 WHERE name = ? AND id = ? AND expires > ?
RETURNING token

-- drop
-- The fast path: release a lock without waiters and watchers. Many released rows fit on a page without the
-- metadata.
UPDATE lock SET id = NULL, client = NULL, metadata = NULL
WHERE name = ? AND id = ?
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE waiter.name = lock.name)
  AND NOT EXISTS (SELECT 1 FROM watcher WHERE watcher.name = lock.name)

-- lock
SELECT permits, lapsed_offer, id, client, lifetime, token, expires, metadata, since, step, offered, free_from
FROM lock WHERE name = ?

-- holds
SELECT id, client, lifetime, token, expires, metadata, since, step, offered, mode, permits
FROM hold WHERE name = ? ORDER BY token

-- create
INSERT INTO lock (name, token)
SELECT ?, CAST(value AS INTEGER) FROM fact WHERE key = 'floor' ON CONFLICT (name) DO NOTHING

-- draw
-- name; micros; micros; micros
INSERT INTO lock (name, token, since)
VALUES (?, max(?, 1 + (SELECT CAST(value AS INTEGER) FROM fact WHERE key = 'floor')),
        ? / 1e6)
ON CONFLICT (name) DO UPDATE SET token = max(lock.token + 1, ?), since = excluded.since
RETURNING token

-- put exclusive
UPDATE lock SET id = ?, client = ?, lifetime = ?, expires = ?, metadata = ?, since = ?,
                step = ?, offered = ?, free_from = ?
WHERE name = ?

-- put
INSERT OR REPLACE INTO hold (id, client, lifetime, expires, metadata, since, token, mode, permits,
                             step, offered, name)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- remove
DELETE FROM hold WHERE name = ? AND id = ?

-- mark
-- After the exclusive hold, or without one: the row needs no metadata.
UPDATE lock SET id = ?, client = NULL, metadata = NULL WHERE name = ?

-- set limit
UPDATE lock SET permits = ? WHERE name = ?

-- set lapsed_offer
UPDATE lock SET lapsed_offer = ? WHERE name = ?

-- queue
SELECT name, id, client, lease, metadata, since, mode, permits, last_seen FROM waiter
WHERE name = ? ORDER BY ticket

-- has queue
SELECT 1 FROM waiter WHERE name = ? LIMIT 1

-- queued
SELECT 1 FROM waiter WHERE id = ?

-- ahead
SELECT name, id, client, lease, metadata, since, mode, permits, last_seen FROM waiter
WHERE name = :name
  AND ticket < coalesce((SELECT ticket FROM waiter WHERE id = :id), 9223372036854775807)
ORDER BY ticket DESC

-- behind
SELECT name, id, client, lease, metadata, since, mode, permits, last_seen FROM waiter
WHERE name = :name AND ticket > (SELECT ticket FROM waiter WHERE id = :id)
ORDER BY ticket LIMIT 1

-- join
INSERT INTO waiter (name, ticket, id, client, lease, metadata, since, mode, permits, last_seen)
VALUES (:name, 1 + coalesce((SELECT max(ticket) FROM waiter WHERE name = :name), 0),
        :id, :client, :lease, :metadata, :since, :mode, :permits, :last_seen)
ON CONFLICT (id) DO UPDATE SET last_seen = excluded.last_seen

-- touch
UPDATE waiter SET last_seen = ? WHERE name = ? AND client = ?

-- find untouched
SELECT 1 FROM waiter WHERE name = ? AND last_seen < ? LIMIT 1

-- length
SELECT count(*) FROM waiter WHERE name = ?

-- quit
DELETE FROM waiter WHERE id = ?

-- has tombstone
SELECT 1 FROM tombstone WHERE id = ? AND until > ?

-- tombstone
INSERT INTO tombstone (id, until) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET until = excluded.until

-- expire tombstones
DELETE FROM tombstone WHERE until <= ?

-- watch
INSERT INTO watcher (name, id, client, until) VALUES (?, ?, ?, ?)
ON CONFLICT (name, id) DO UPDATE SET until = excluded.until

-- watchers
SELECT id, client, until FROM watcher WHERE name = ?

-- end watch
DELETE FROM watcher WHERE name = ? AND id = ?

-- names
SELECT name FROM lock WHERE id IS NOT NULL UNION SELECT name FROM waiter ORDER BY name

-- clients
SELECT client FROM lock WHERE id <> '' UNION SELECT client FROM hold UNION SELECT client FROM waiter

-- fact
SELECT value FROM fact WHERE key = ?

-- facts
SELECT key, value FROM fact

-- state
INSERT INTO fact (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- forget holds
DELETE FROM hold

-- free all
UPDATE lock SET id = NULL, client = NULL, metadata = NULL, lapsed_offer = 0
WHERE id IS NOT NULL OR lapsed_offer <> 0

-- forget waiters
DELETE FROM waiter

-- forget tombstones
DELETE FROM tombstone

-- forget watchers
DELETE FROM watcher

-- rows after
SELECT rowid, id IS NULL, since < ? FROM lock WHERE rowid > ? ORDER BY rowid LIMIT ?

-- range of rows
SELECT (SELECT min(rowid) FROM lock), (SELECT max(rowid) FROM lock)

-- raise floor
UPDATE fact SET value = ? WHERE key = 'floor' AND CAST(value AS INTEGER) < ?

-- greatest token
SELECT max(token) FROM lock WHERE rowid > ? AND rowid <= ? AND id IS NULL AND since < ?

-- prune
DELETE FROM lock WHERE rowid > ? AND rowid <= ? AND id IS NULL AND since < ?

-- names of rows
SELECT name FROM lock WHERE rowid > ? AND rowid <= ? AND id IS NOT NULL AND typeof(name) = 'text'

-- is unused
SELECT 1 FROM lock WHERE name = ? AND id IS NULL AND since < ?

-- next queues
SELECT DISTINCT name FROM waiter WHERE name > CAST(? AS TEXT) AND typeof(name) = 'text'
ORDER BY name LIMIT ?

-- expire watchers
DELETE FROM watcher WHERE until <= ?

-- columns
SELECT master.name, info.name
FROM sqlite_master AS master JOIN pragma_table_info(master.name) AS info WHERE master.type = 'table'

-- tables
SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name
