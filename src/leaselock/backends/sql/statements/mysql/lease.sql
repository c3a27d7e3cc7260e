-- begin
-- A client that freezes in mid-transaction must not keep others from the row for long.
SET SESSION wait_timeout = 3; START TRANSACTION

-- commit
COMMIT; SET SESSION wait_timeout = 3600

-- rollback
ROLLBACK; SET SESSION wait_timeout = 3600

-- greet
-- The number of this session, to find out whether a proxy is in between. What others have
-- committed is seen at once, and no gap between rows is locked.
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 3;
SET SESSION wait_timeout = 3600; SELECT CONNECTION_ID()

-- fact
SELECT value FROM leaselock_fact WHERE fact = :fact

-- take
-- The short way in: one statement for a lock that is free, with nobody beside it.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
    holder = :holder, client = :client, tie = 'either', about = :about,
    expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :lease,
    since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE name = :name AND holder IS NULL AND beside = 0

-- confirm
-- The short way from a hand-over to a whole lease: the hold is the claim's, and not over.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(token), expires = 1 + GREATEST(expires,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :lease)
WHERE name = :name AND holder = :holder
  AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- drop
-- The short way out: free a lock that has nobody beside it.
UPDATE leaselock_lock SET holder = NULL WHERE name = :name AND holder = :holder AND beside = 0

-- renew
-- The microsecond makes it a change: the server counts the rows that it changed, not those found.
UPDATE leaselock_lock SET expires = 1 + GREATEST(expires,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :lease)
WHERE name = :name AND holder = :holder

-- make
-- A row to lock, where there is none yet.
INSERT IGNORE INTO leaselock_lock (name, token)
SELECT :name, CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor'

-- lock
SELECT token, beside, holder, client, tie, expires, about, since FROM leaselock_lock
WHERE name = :name FOR UPDATE

-- weed waiters
DELETE FROM leaselock_waiter WHERE name = :name
  AND expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- weed graves
DELETE FROM leaselock_grave WHERE name = :name
  AND expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- now
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- buried
SELECT holder FROM leaselock_grave WHERE name = :name AND holder = :holder

-- waiters
-- The head of the queue, its tail, and who is beside the one that asks; and whether each is dead.
-- Only their tickets are put together: a table of texts would go to the disk, by way of an engine
-- (Aria) in which MariaDB 10.11 has crashed in our tests, which kill connections at any moment.
SELECT w.ticket, w.holder, w.client, w.lease, w.about, w.since, w.polls, w.sign,
    w.sign IS NOT NULL AND IS_USED_LOCK(w.sign) IS NULL
FROM (
    (SELECT ticket FROM leaselock_waiter WHERE name = :name ORDER BY ticket LIMIT 3)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name
       AND ticket < (SELECT o.ticket FROM leaselock_waiter o WHERE o.holder = :holder)
     ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name
       AND ticket >= (SELECT o.ticket FROM leaselock_waiter o WHERE o.holder = :holder)
     ORDER BY ticket LIMIT 2)
) q STRAIGHT_JOIN leaselock_waiter w ON w.name = :name AND w.ticket = q.ticket

-- store
UPDATE leaselock_lock SET token = :token, beside = :beside, holder = :holder, client = :client,
    tie = :tie, expires = :expires, about = :about, since = :since
WHERE name = :name

-- join
INSERT INTO leaselock_waiter (name, ticket, holder, client, lease, about, since, expires, polls, sign)
VALUES (:name, :ticket, :holder, :client, :lease, :about, :since, :expires, :polls,
        :sign)

-- stay
UPDATE leaselock_waiter SET expires = :expires, polls = :polls, sign = :sign
WHERE name = :name AND holder = :holder

-- quit
DELETE FROM leaselock_waiter WHERE name = :name AND holder = :holder

-- bury
INSERT INTO leaselock_grave (name, holder, expires) VALUES (:name, :holder, :expires)
ON DUPLICATE KEY UPDATE expires = :expires

-- leave word
INSERT IGNORE INTO leaselock_wake (client, holder, expires) VALUES (:client, :holder, :expires)

-- sign
-- While a client listens, it has the lock of this name: so others can see that it lives, and find
-- its connection.
SELECT GET_LOCK(:sign, 0)

-- listener
SELECT IS_USED_LOCK(:sign)

-- ring
-- Ends the listener's sleep, and nothing else: there is no other query on its connection.
KILL QUERY :number

-- doze
-- One statement looks and sleeps: a bell that rings in between would not be heard.
SELECT SLEEP(IF(EXISTS(SELECT 1 FROM leaselock_wake WHERE client = :client), 0, :millis / 1000))

-- words
-- What was left for a client that has to look.
SELECT holder FROM leaselock_wake WHERE client = :client

-- forget word
DELETE FROM leaselock_wake WHERE client = :client AND holder = :holder

-- one
SELECT name, holder, client, tie, token, expires, about, since FROM leaselock_lock
WHERE name = :name AND holder IS NOT NULL
  AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- all
SELECT name, holder, client, tie, token, expires, about, since FROM leaselock_lock
WHERE holder IS NOT NULL
  AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- queue
SELECT name, holder, client, lease, about, since FROM leaselock_waiter
WHERE name = :name AND expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
ORDER BY ticket

-- queues
SELECT name, holder, client, lease, about, since FROM leaselock_waiter
WHERE expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
ORDER BY name, ticket

-- begin setup
-- Two that set up at the same time do it one after the other.
SELECT GET_LOCK('leaselock setup', 10)

-- raise floor
UPDATE leaselock_fact SET value = CAST(GREATEST(CAST(value AS SIGNED), COALESCE(
    (SELECT MAX(token) FROM leaselock_lock WHERE holder IS NULL AND beside = 0
     AND since < :before), 0)) AS CHAR)
WHERE fact = 'floor'

-- unused rows
SELECT r.name FROM leaselock_row r LEFT JOIN leaselock_lock l ON l.name = r.name
WHERE COALESCE(l.since, 0) < :before AND r.name NOT IN (SELECT name FROM leaselock_seat)

-- sweep row
-- One that somebody has locked is waited for in vain.
DELETE FROM leaselock_row WHERE name = :name

-- sweep locks
DELETE FROM leaselock_lock WHERE holder IS NULL AND beside = 0 AND COALESCE(since, 0) < :before
  AND name NOT IN (SELECT name FROM leaselock_seat)

-- sweep words
DELETE FROM leaselock_wake WHERE expires < :now

-- sweep seats
DELETE FROM leaselock_seat WHERE since < :before AND IS_USED_LOCK(sign) IS NULL

-- weeds
-- Names with waiters or graves that are over.
SELECT name FROM leaselock_waiter WHERE expires < :now
UNION SELECT name FROM leaselock_grave WHERE expires < :now

-- end setup
SELECT RELEASE_LOCK('leaselock setup')

-- raw
:text

-- settings
SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'wsrep_on', 'wait_timeout',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'binlog_format')
