-- fact
-- The second condition is always true. The statement fails where the tables have other columns under the
-- number of this layout, as some had before the first release.
SELECT value FROM leaselock_fact WHERE {fact} = :fact
AND NOT EXISTS (SELECT lapsed_offer FROM leaselock_lock WHERE 1 = 0)

-- release uncontended
-- Fast path: releases a lock without waiters and tombstones.
UPDATE leaselock_lock SET id = NULL, free_from = NULL
WHERE name = :name AND id = :id AND pending = 0

-- lock
SELECT token, pending, id, client, lifetime, expires, metadata, since, free_from, step, offered,
    permits, lapsed_offer
FROM leaselock_lock WHERE name = :name FOR UPDATE

-- expire waiters
DELETE FROM leaselock_waiter WHERE name = :name AND expires <= {now}

-- expire tombstones
DELETE FROM leaselock_tombstone WHERE name = :name AND expires <= {now}

-- now
SELECT {now}

-- tombstone
-- The tombstone of the claim :id, and all watchers.
SELECT id FROM leaselock_tombstone WHERE name = :name AND (id = :id OR id LIKE 'watch%')

-- update lock
UPDATE leaselock_lock SET token = :token, pending = :pending, id = :id, client = :client,
    lifetime = :lifetime, expires = :expires, metadata = :metadata, since = :since,
    free_from = :free_from, step = :step, offered = :offered, permits = :permits, lapsed_offer = :lapsed_offer
WHERE name = :name

-- holds
-- The holds that are not exclusive.
SELECT id, client, lifetime, token, expires, metadata, since, mode, permits, step, offered
FROM leaselock_hold WHERE name = :name ORDER BY token

-- all holds
SELECT h.name, h.id, h.client, h.lifetime, h.token, h.expires, h.metadata, h.since, h.mode, h.permits,
    h.step, h.offered, l.permits
FROM leaselock_hold h JOIN leaselock_lock l ON l.name = h.name
WHERE h.expires > {now} ORDER BY h.name, h.token

-- one holds
SELECT h.name, h.id, h.client, h.lifetime, h.token, h.expires, h.metadata, h.since, h.mode, h.permits,
    h.step, h.offered, l.permits
FROM leaselock_hold h JOIN leaselock_lock l ON l.name = h.name
WHERE h.name = :name AND h.expires > {now} ORDER BY h.name, h.token

-- remove hold
DELETE FROM leaselock_hold WHERE name = :name AND id = :id

-- renew hold
UPDATE leaselock_hold SET offered = 0, expires = {change}greatest(expires, {now} + :lease)
WHERE name = :name AND id = :id AND expires > {now}

-- dequeue
DELETE FROM leaselock_waiter WHERE name = :name AND id = :id

-- wakeups
-- Wake-ups stored for a client that polls.
SELECT id FROM leaselock_wake WHERE client = :client

-- delete wakeup
DELETE FROM leaselock_wake WHERE client = :client AND id = :id

-- one
SELECT name, id, client, lifetime, token, expires, metadata, since, free_from FROM leaselock_lock
WHERE name = :name AND id IS NOT NULL AND (expires > {now} OR expires IS NULL)

-- all
SELECT name, id, client, lifetime, token, expires, metadata, since, free_from FROM leaselock_lock
WHERE id IS NOT NULL AND (expires > {now} OR expires IS NULL)

-- queue
SELECT name, id, client, lease, metadata, since, mode, permits FROM leaselock_waiter
WHERE name = :name AND expires > {now} ORDER BY ticket

-- queues
SELECT name, id, client, lease, metadata, since, mode, permits FROM leaselock_waiter
WHERE expires > {now} ORDER BY name, ticket

-- unused rows
SELECT r.name FROM leaselock_row r LEFT JOIN leaselock_lock l ON l.name = r.name
WHERE r.name > :after AND coalesce(l.since, 0) < :before
  AND r.name NOT IN (SELECT name FROM leaselock_session)
ORDER BY r.name LIMIT :most

-- ended names
-- Names with expired waiters, tombstones or holds that one statement cannot remove. MySQL 8.0.33 ends
-- with a signal if it has to push the condition on the name down into the parts.
SELECT name FROM (
    SELECT name FROM leaselock_waiter WHERE name > :after AND expires < :now
    UNION SELECT name FROM leaselock_tombstone WHERE name > :after AND expires < :now
    UNION SELECT name FROM leaselock_hold WHERE name > :after AND expires < :now
    UNION SELECT name FROM leaselock_lock
        WHERE name > :after AND pending > 0 AND id IS NOT NULL AND expires < :now
) e ORDER BY name LIMIT :most

-- put hold
INSERT INTO leaselock_hold (name, id, client, lifetime, token, expires, metadata, since, mode, permits,
    step, offered)
VALUES (:name, :id, :client, :lifetime, :token, :expires, :metadata, :since, :mode, :permits, :step,
    :offered)
{upsert name, id: client, lifetime, token, expires, metadata, since, mode, permits, step, offered}

-- enqueue
INSERT INTO leaselock_waiter (name, ticket, id, client, lease, metadata, since, expires, polls, liveness_key,
    mode, permits)
VALUES (:name, :ticket, :id, :client, :lease, :metadata, :since, :expires, {:polls},
        :liveness_key, :mode, :permits)

-- refresh waiter
UPDATE leaselock_waiter SET expires = :expires, polls = {:polls}, liveness_key = :liveness_key
WHERE name = :name AND id = :id

-- add tombstone
INSERT INTO leaselock_tombstone (name, id, expires) VALUES (:name, :id, :expires)
{upsert name, id: expires}

-- store wakeup
{insert} INTO leaselock_wake (client, id, expires) VALUES (:client, :id, :expires){unless there}

-- create row
{insert} INTO leaselock_row (name) VALUES (:name){unless there}

-- row exists
SELECT count(*) FROM leaselock_row WHERE name = :name

-- create lock
-- Creates the row of a name, so that it can be locked. If it is deleted meanwhile, the token is still
-- no less than the last one: the row is read when the floor is.
{insert} INTO leaselock_lock (name, token, since)
SELECT :name, greatest(CAST(value AS {number}),
    coalesce((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0)), {now}
FROM leaselock_fact WHERE {fact} = 'floor'{unless there}

-- garbage page
-- The next names: the last of them, and the highest token of those that "collect locks" deletes.
SELECT max(name), max(CASE WHEN pending = 0 AND (id IS NULL OR expires < :now)
    AND coalesce(since, 0) < :before THEN token END)
FROM (SELECT name, token, pending, id, expires, since FROM leaselock_lock WHERE name > :after
      ORDER BY name LIMIT :most) p

-- raise floor
UPDATE leaselock_fact SET value = CAST(greatest(CAST(value AS {number}), :token) AS {digits})
WHERE {fact} = 'floor'

-- lock liveness key
-- A client holds this lock while it listens. It shows other clients that it is alive, and to MySQL
-- which connection it listens on.
SELECT {take liveness key}

-- mark alive
-- Takes the lock that shows that the session is alive.
SELECT {take liveness key}

-- record waiter
-- A waiter has no token yet.
INSERT INTO leaselock_session
    (session, protocol, name, id, client, token, backend, liveness_key, metadata, since, mode)
VALUES (:session, :protocol, :name, :id, :client, NULL, :backend, :liveness_key, :metadata, :since, :mode)
{upsert session: protocol, name, id, client, token, backend, liveness_key, metadata, since, mode};
SELECT {take liveness key}

-- raw
:text

-- commit transaction
COMMIT

-- roll back
ROLLBACK

-- ping
SELECT 1
