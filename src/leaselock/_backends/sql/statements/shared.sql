-- fact
SELECT value FROM leaselock_fact WHERE {fact} = :fact

-- release uncontended
-- Fast path: releases a lock without waiters and tombstones.
UPDATE leaselock_lock SET id = NULL, free_from = NULL
WHERE name = :name AND id = :id AND pending = 0

-- lock
SELECT token, pending, id, client, lifetime, expires, metadata, since, free_from, step, offered,
    permits, doubt
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
    free_from = :free_from, step = :step, offered = :offered, permits = :permits, doubt = :doubt
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

-- touch waiter
UPDATE leaselock_waiter SET expires = :expires WHERE name = :name AND id = :id

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
-- Names with expired waiters, tombstones or holds that one statement cannot remove.
SELECT name FROM (
    SELECT name FROM leaselock_waiter WHERE expires < :now
    UNION SELECT name FROM leaselock_tombstone WHERE expires < :now
    UNION SELECT name FROM leaselock_hold WHERE expires < :now
    UNION SELECT name FROM leaselock_lock WHERE pending > 0 AND id IS NOT NULL AND expires < :now
) e WHERE name > :after ORDER BY name LIMIT :most

-- raw
:text

-- commit transaction
COMMIT

-- roll back
ROLLBACK

-- ping
SELECT 1
