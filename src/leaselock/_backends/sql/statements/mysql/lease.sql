-- "wait_timeout" is 1 within a transaction, so that a client that stops frees its rows, and 3600 outside.
-- /*!80001 is for MySQL from 8.0.1 on, /*M!100600 for MariaDB from 10.6 on. MySQL counts changed rows only.

-- begin
-- A client that stops inside a transaction must not block the row for long.
SET SESSION wait_timeout = 1; START TRANSACTION

-- begin renewal
SET SESSION wait_timeout = 1; START TRANSACTION

-- begin snapshot
-- All statements see the same state of the tables.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY

-- commit
COMMIT; SET SESSION wait_timeout = 3600

-- rollback
ROLLBACK; SET SESSION wait_timeout = 3600

-- identify
-- The number of this session in the server. It differs from the number in the handshake if there is
-- a proxy between client and server. READ COMMITTED shows new commits at once and locks no gaps.
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 3;
SET SESSION wait_timeout = 3600; SELECT CONNECTION_ID()

-- acquire free
-- Fast path: acquires a free lock without waiters and tombstones in one statement.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        {now})),
    id = :id, client = :client, lifetime = 'either', metadata = :metadata, step = 0, offered = 0,
    expires = {now} + :lease,
    since = {now}
WHERE name = :name AND id IS NULL AND pending = 0

-- confirm
-- Fast path: extends a hand-off to the whole lease, if the claim holds and has not expired.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(token), offered = 0, expires = 1 + GREATEST(expires,
    {now} + :lease)
WHERE name = :name AND id = :id
  AND expires > {now}

-- renew
-- A hold that has ended is not renewed, and one whose row is locked is left out: MySQL 8 and MariaDB
-- 10.6 read the comment that is their own. LIMIT keeps MySQL from merging the subquery.
-- The extra microsecond makes it a change: the server counts changed rows, not matching rows.
UPDATE leaselock_lock l JOIN (
    SELECT name FROM leaselock_lock WHERE name = :name AND id = :id LIMIT 1
    /*!80001 FOR UPDATE SKIP LOCKED */ /*M!100600 FOR UPDATE SKIP LOCKED */) f ON f.name = l.name
SET l.offered = 0, l.expires = 1 + GREATEST(l.expires, {now} + :lease)
WHERE l.id = :id AND l.expires > {now}

-- lock to renew
-- Waits for transactions of others, but not until the server ends one whose client has stopped.
-- MySQL reads the hint, MariaDB the comment.
/*M!100106 SET STATEMENT max_statement_time = :timeout / 1000 FOR */
SELECT /*+ MAX_EXECUTION_TIME(:timeout) */ name FROM leaselock_lock WHERE name = :name FOR UPDATE

-- waiters
-- The head of the queue, up to the exclusive waiter behind :exclusives others and at most :most waiters, its tail, the neighbours of the waiter :id, and
-- whether each is dead.
-- The UNION has only tickets: a temporary table with text columns would use the storage engine Aria,
-- in which MariaDB 10.11 crashed in tests that kill connections at random moments.
SELECT w.ticket, w.id, w.client, w.lease, w.metadata, w.since, w.polls, w.liveness_key,
    w.mode, w.permits, w.expires,
    w.liveness_key IS NOT NULL AND IS_USED_LOCK(w.liveness_key) IS NULL
FROM (
    (SELECT ticket FROM leaselock_waiter WHERE name = :name AND ticket <= COALESCE(
       (SELECT o.ticket FROM leaselock_waiter o WHERE o.name = :name AND o.mode = 'exclusive'
        ORDER BY o.ticket LIMIT :exclusives, 1), 9223372036854775807) ORDER BY ticket LIMIT :most)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name
       AND ticket < (SELECT o.ticket FROM leaselock_waiter o WHERE o.id = :id)
     ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket FROM leaselock_waiter WHERE name = :name
       AND ticket >= (SELECT o.ticket FROM leaselock_waiter o WHERE o.id = :id)
     ORDER BY ticket LIMIT 2)
) q STRAIGHT_JOIN leaselock_waiter w ON w.name = :name AND w.ticket = q.ticket

-- listener connection
SELECT IS_USED_LOCK(:liveness_key)

-- interrupt
-- Interrupts the sleep of a listener. Its connection runs no other statements.
KILL QUERY :number

-- sleep
-- Looks and sleeps in one statement: an interrupt between two statements would have no effect.
SELECT SLEEP(IF(EXISTS(SELECT 1 FROM leaselock_wake WHERE client = :client), 0, :millis / 1000))

-- begin setup
-- Serializes concurrent setups.
SELECT GET_LOCK('leaselock setup', 10)

-- collect locks
-- Rows whose token the floor does not cover yet are left for the next time.
DELETE FROM leaselock_lock WHERE name > :after AND name <= :last
  AND pending = 0 AND (id IS NULL OR expires < :now) AND COALESCE(since, 0) < :before
  AND token <= (SELECT CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor')
  AND name NOT IN (SELECT name FROM leaselock_session)

-- collect exclusive holds
UPDATE leaselock_lock SET id = NULL, free_from = NULL WHERE name > :after AND name <= :last
  AND pending = 0 AND id IS NOT NULL AND expires < :now

-- collect row
-- A locked row makes this fail by timeout.
DELETE FROM leaselock_row WHERE name = :name

-- collect wakeups
DELETE FROM leaselock_wake WHERE expires < :now LIMIT :most

-- collect sessions
-- Not a damaged row either, while the session lives that wrote it. Not every text is a key.
DELETE FROM leaselock_session WHERE since < :recent AND IS_USED_LOCK({holder key}) IS NULL
    AND IF(liveness_key LIKE 'leaselock.%', IS_USED_LOCK(liveness_key), NULL) IS NULL LIMIT :most

-- end setup
SELECT RELEASE_LOCK('leaselock setup')

-- free space
-- Of the disk with the data, in KiB. MariaDB has the plugin, and requires the right FILE.
SELECT available FROM information_schema.disks WHERE LOCATE(path, @@datadir) = 1
ORDER BY LENGTH(path) DESC LIMIT 1

-- settings
SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'wsrep_on', 'wait_timeout',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'binlog_format',
    'max_connections', 'max_user_connections', 'hostname', 'datadir')
