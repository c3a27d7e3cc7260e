-- begin
-- A client that freezes in mid-transaction must not keep others from the row for long.
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL lock_timeout = '3s'

-- commit
COMMIT

-- rollback
ROLLBACK

-- greet
-- Text as it is meant; the number of this session, to find out whether a proxy is in between.
SELECT pg_backend_pid()::bigint

-- usual
-- For all transactions of a session that is ours alone: what others have committed is seen at once.
SET default_transaction_isolation TO 'read committed'

-- fact
SELECT value FROM leaselock_fact WHERE key = :fact

-- take
-- The short way in: one statement for a lock that is free, with nobody beside it.
INSERT INTO leaselock_lock AS l (name, token, holder, client, tie, expires, about, since)
SELECT :name, greatest(f.value::bigint + 1, n.micros), :holder, :client, 'either',
       n.micros + :lease, :about, n.micros
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) n,
     leaselock_fact f WHERE f.key = 'floor'
ON CONFLICT (name) DO UPDATE SET
    token = greatest(l.token + 1, excluded.token), holder = excluded.holder,
    client = excluded.client, tie = excluded.tie, expires = excluded.expires,
    about = excluded.about, since = excluded.since
WHERE l.holder IS NULL AND l.beside = 0
RETURNING l.token

-- confirm
-- The short way from a hand-over to a whole lease: the hold is the claim's, and not over.
UPDATE leaselock_lock SET expires = greatest(expires,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + :lease)
WHERE name = :name AND holder = :holder
  AND expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
RETURNING token

-- drop
-- The short way out: free a lock that has nobody beside it.
UPDATE leaselock_lock SET holder = NULL WHERE name = :name AND holder = :holder AND beside = 0

-- renew
UPDATE leaselock_lock SET expires = greatest(expires,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + :lease)
WHERE name = :name AND holder = :holder

-- make
-- A row to lock, where there is none yet.
INSERT INTO leaselock_lock (name, token)
SELECT :name, value::bigint FROM leaselock_fact WHERE key = 'floor'
ON CONFLICT (name) DO NOTHING

-- lock
SELECT token, beside, holder, client, tie, expires, about, since FROM leaselock_lock
WHERE name = :name FOR UPDATE

-- weed waiters
DELETE FROM leaselock_waiter WHERE name = :name
  AND expires <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- weed graves
DELETE FROM leaselock_grave WHERE name = :name
  AND expires <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- buried
SELECT holder FROM leaselock_grave WHERE name = :name AND holder = :holder

-- waiters
-- The head of the queue, its tail, and who is beside the one that asks; and whether each is dead.
SELECT q.*, sign IS NOT NULL AND pg_try_advisory_xact_lock_shared(sign)
FROM (
    (SELECT ticket, holder, client, lease, about, since, polls, sign
     FROM leaselock_waiter WHERE name = :name ORDER BY ticket LIMIT 3)
    UNION (SELECT ticket, holder, client, lease, about, since, polls, sign
     FROM leaselock_waiter WHERE name = :name ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket, holder, client, lease, about, since, polls, sign
     FROM leaselock_waiter WHERE name = :name
       AND ticket < (SELECT w.ticket FROM leaselock_waiter w WHERE w.holder = :holder)
     ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket, holder, client, lease, about, since, polls, sign
     FROM leaselock_waiter WHERE name = :name
       AND ticket >= (SELECT w.ticket FROM leaselock_waiter w WHERE w.holder = :holder)
     ORDER BY ticket LIMIT 2)
) q

-- store
UPDATE leaselock_lock SET token = :token, beside = :beside, holder = :holder, client = :client,
    tie = :tie, expires = :expires, about = :about, since = :since
WHERE name = :name

-- join
INSERT INTO leaselock_waiter (name, ticket, holder, client, lease, about, since, expires, polls, sign)
VALUES (:name, :ticket, :holder, :client, :lease, :about, :since, :expires, :polls = 1,
        :sign)

-- stay
UPDATE leaselock_waiter SET expires = :expires, polls = (:polls = 1), sign = :sign
WHERE name = :name AND holder = :holder

-- quit
DELETE FROM leaselock_waiter WHERE name = :name AND holder = :holder

-- bury
INSERT INTO leaselock_grave (name, holder, expires) VALUES (:name, :holder, :expires)
ON CONFLICT (name, holder) DO UPDATE SET expires = excluded.expires

-- sign
-- While a client listens, it has the lock of this number: so others can see that it lives.
SELECT pg_try_advisory_lock(:sign)

-- wake
SELECT pg_notify(:channel, :holder)

-- leave word
INSERT INTO leaselock_wake (client, holder, expires) VALUES (:client, :holder, :expires)
ON CONFLICT (client, holder) DO NOTHING

-- words
-- What was left for a client that has to look.
SELECT holder FROM leaselock_wake WHERE client = :client

-- forget word
DELETE FROM leaselock_wake WHERE client = :client AND holder = :holder

-- one
SELECT name, holder, client, tie, token, expires, about, since FROM leaselock_lock
WHERE name = :name AND holder IS NOT NULL
  AND expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- all
SELECT name, holder, client, tie, token, expires, about, since FROM leaselock_lock
WHERE holder IS NOT NULL
  AND expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- queue
SELECT name, holder, client, lease, about, since FROM leaselock_waiter
WHERE name = :name AND expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
ORDER BY ticket

-- queues
SELECT name, holder, client, lease, about, since FROM leaselock_waiter
WHERE expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
ORDER BY name, ticket

-- begin setup
-- Two that set up at the same time do it one after the other.
BEGIN; SELECT pg_advisory_xact_lock(5219371834226851183)

-- raise floor
UPDATE leaselock_fact SET value = greatest(value::bigint, coalesce(
    (SELECT max(token) FROM leaselock_lock WHERE holder IS NULL AND beside = 0
     AND since < :before), 0))::text
WHERE key = 'floor'

-- unused rows
SELECT r.name FROM leaselock_row r LEFT JOIN leaselock_lock l ON l.name = r.name
WHERE coalesce(l.since, 0) < :before AND r.name NOT IN (SELECT name FROM leaselock_seat)

-- sweep row
-- Never one that somebody has locked.
DELETE FROM leaselock_row WHERE name IN (
    SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE SKIP LOCKED)

-- sweep locks
DELETE FROM leaselock_lock WHERE holder IS NULL AND beside = 0 AND coalesce(since, 0) < :before
  AND name NOT IN (SELECT name FROM leaselock_seat)

-- sweep words
DELETE FROM leaselock_wake WHERE expires < :now

-- weeds
-- Names with waiters or graves that are over.
SELECT name FROM leaselock_waiter WHERE expires < :now
UNION SELECT name FROM leaselock_grave WHERE expires < :now

-- sweep seats
DELETE FROM leaselock_seat s WHERE since < :before AND NOT EXISTS (
    SELECT 1 FROM pg_locks p WHERE p.locktype = 'advisory' AND p.objsubid = 1
      AND (p.classid::bigint << 32 | p.objid::bigint) = s.sign AND p.pid = s.backend)

-- end setup
COMMIT

-- raw
:text

-- settings
SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'synchronous_commit',
    'statement_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
    'transaction_timeout')
UNION ALL SELECT 'version', version() UNION ALL SELECT 'in_recovery', pg_is_in_recovery()::text
