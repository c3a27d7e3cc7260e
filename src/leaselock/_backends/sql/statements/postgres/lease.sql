-- begin
-- A client that stops inside a transaction must not block the row for long.
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL lock_timeout = '3s'

-- begin renewal
-- Waits for transactions of others, but not until the server ends one whose client has stopped.
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = :timeout

-- begin snapshot
-- All statements see the same state of the tables.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- commit
COMMIT

-- rollback
ROLLBACK

-- identify
-- The number of this session in the server. It differs from the number in the handshake if there is
-- a proxy between client and server.
SELECT pg_backend_pid()::bigint

-- session defaults
-- For all transactions of this session: each statement sees what is committed when it starts.
SET default_transaction_isolation TO 'read committed'

-- acquire free
-- Fast path: acquires a free lock without waiters and tombstones in one statement. If its row is
-- deleted meanwhile, the token is still greater than the last one: the row is read when the floor is.
INSERT INTO leaselock_lock AS l (name, token, id, client, lifetime, expires, metadata, since)
SELECT :name, greatest(f.value::bigint + 1, n.micros,
           1 + coalesce((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0)), :id, :client, 'either',
       n.micros + :lease, :metadata, n.micros
FROM (SELECT {now} AS micros) n,
     leaselock_fact f WHERE f.key = 'floor'
ON CONFLICT (name) DO UPDATE SET
    token = greatest(l.token + 1, excluded.token), id = excluded.id,
    client = excluded.client, lifetime = excluded.lifetime, expires = excluded.expires,
    metadata = excluded.metadata, since = excluded.since, step = 0, offered = 0
WHERE l.id IS NULL AND l.pending = 0
RETURNING l.token

-- confirm
-- Fast path: extends a hand-off to the whole lease, if the claim holds and has not expired.
UPDATE leaselock_lock SET offered = 0, expires = greatest(expires,
    {now} + :lease)
WHERE name = :name AND id = :id
  AND expires > {now}
RETURNING token

-- renew
-- A hold that has ended is not renewed, and one whose row is locked is left out.
UPDATE leaselock_lock SET offered = 0, expires = greatest(expires,
    {now} + :lease)
WHERE name = (SELECT name FROM leaselock_lock WHERE name = :name AND id = :id FOR UPDATE SKIP LOCKED)
  AND expires > {now}

-- lock to renew
SELECT name FROM leaselock_lock WHERE name = :name FOR UPDATE

-- waiters
-- The head of the queue, up to the exclusive waiter behind :exclusives others and at most :most waiters, its tail, the neighbours of the waiter :id, and
-- whether each is dead.
SELECT q.*, liveness_key IS NOT NULL AND pg_try_advisory_xact_lock_shared(liveness_key)
FROM (
    (SELECT ticket, id, client, lease, metadata, since, polls, liveness_key, mode, permits, expires
     FROM leaselock_waiter WHERE name = :name AND ticket <= coalesce(
       (SELECT w.ticket FROM leaselock_waiter w WHERE w.name = :name AND w.mode = 'exclusive'
        ORDER BY w.ticket OFFSET :exclusives LIMIT 1), 9223372036854775807) ORDER BY ticket LIMIT :most)
    UNION (SELECT ticket, id, client, lease, metadata, since, polls, liveness_key, mode, permits, expires
     FROM leaselock_waiter WHERE name = :name ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket, id, client, lease, metadata, since, polls, liveness_key, mode, permits, expires
     FROM leaselock_waiter WHERE name = :name
       AND ticket < (SELECT w.ticket FROM leaselock_waiter w WHERE w.id = :id)
     ORDER BY ticket DESC LIMIT 2)
    UNION (SELECT ticket, id, client, lease, metadata, since, polls, liveness_key, mode, permits, expires
     FROM leaselock_waiter WHERE name = :name
       AND ticket >= (SELECT w.ticket FROM leaselock_waiter w WHERE w.id = :id)
     ORDER BY ticket LIMIT 2)
) q

-- notify
SELECT pg_notify(:channel, :id)

-- begin setup
-- Serializes concurrent setups.
BEGIN; SELECT pg_advisory_xact_lock(5219371834226851183)

-- collect locks
-- Rows whose token the floor does not cover yet, and rows that are locked, are left for the next time.
DELETE FROM leaselock_lock WHERE name IN (
    SELECT name FROM leaselock_lock WHERE name > :after AND name <= :last
      AND pending = 0 AND (id IS NULL OR expires < :now) AND coalesce(since, 0) < :before
      AND token <= (SELECT value::bigint FROM leaselock_fact WHERE key = 'floor')
      AND name NOT IN (SELECT name FROM leaselock_session)
    FOR UPDATE SKIP LOCKED)

-- collect exclusive holds
UPDATE leaselock_lock SET id = NULL, free_from = NULL WHERE name IN (
    SELECT name FROM leaselock_lock WHERE name > :after AND name <= :last
      AND pending = 0 AND id IS NOT NULL AND expires < :now
    FOR UPDATE SKIP LOCKED)

-- collect row
-- Skips rows that are locked.
DELETE FROM leaselock_row WHERE name IN (
    SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE SKIP LOCKED)

-- collect wakeups
DELETE FROM leaselock_wake WHERE (client, id) IN (
    SELECT client, id FROM leaselock_wake WHERE expires < :now LIMIT :most)

-- collect sessions
-- Not a damaged row either, while the session lives that wrote it.
DELETE FROM leaselock_session WHERE session IN (
    WITH held AS (
        SELECT classid::bigint << 32 | objid::bigint AS key FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted)
    SELECT session FROM leaselock_session WHERE since < :recent
      AND liveness_key NOT IN (SELECT key FROM held) AND {holder key} NOT IN (SELECT key FROM held)
    LIMIT :most)
  AND since < :recent

-- end setup
COMMIT

-- try disk
-- Calls a function with a megabyte of rows, which do not fit into the memory for that, so that the
-- server writes them into a temporary file on the disk of the database. That needs no right, and adds
-- nothing to tables and log. (A sort stays in memory since PostgreSQL 17: it leaves unused columns out.)
SET LOCAL temp_tablespaces = ''; SET LOCAL work_mem = '64kB';
SELECT count(*) FROM generate_series(1, 80000)

-- settings
SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'synchronous_commit',
    'statement_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
    'transaction_timeout', 'max_connections', 'superuser_reserved_connections', 'reserved_connections')
UNION ALL SELECT 'version', version() UNION ALL SELECT 'in_recovery', pg_is_in_recovery()::text
UNION ALL SELECT 'role_limit', rolconnlimit::text FROM pg_roles WHERE rolname = current_user
UNION ALL SELECT 'database_limit', datconnlimit::text FROM pg_database
    WHERE datname = current_database()
UNION ALL SELECT 'waiting_to_notify', count(*)::text FROM pg_locks
    WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND objid = 0 AND NOT granted
UNION ALL SELECT 'schema', relnamespace::regnamespace::text FROM pg_class
    WHERE oid = to_regclass('leaselock_fact')
UNION ALL SELECT 'schemas', string_agg(relnamespace::regnamespace::text, ', ' ORDER BY relnamespace::regnamespace::text) FROM pg_class
    WHERE relname = 'leaselock_fact' AND relkind IN ('r', 'p')
