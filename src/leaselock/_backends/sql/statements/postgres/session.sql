-- Each session takes in this order: the liveness key (its row counts while that is held); the lock, which
-- is another key, or a row in a transaction; and the token of leaselock_lock. The session of a row lives
-- while its backend holds the liveness key: a key that another session can take is that of a dead one.

-- session settings
-- Overrides every setting that ends an idle session. A holder proves its life more often than that;
-- if it cannot, the server ends the session after :silence, and no sooner. A session that
-- waits for a lock checks whether its client still exists. Readers that are granted at the same time
-- count tokens in the same row.
SELECT set_config(s.name, w.setting, false), s.name
FROM pg_settings s JOIN (VALUES
    ('idle_session_timeout', :silence), ('idle_in_transaction_session_timeout', :silence),
    ('transaction_timeout', '0'), ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('default_transaction_isolation', 'read committed'),
    ('client_connection_check_interval', '100'), ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '3'), ('tcp_keepalives_count', '3')
) w (name, setting) ON s.name = w.name

-- advisory acquire
-- Takes the lock, draws a token and records the holder in one statement and transaction. A token is
-- drawn only if the lock was free, or is :locked by a wait of this session: the server counts how often
-- a session takes a lock. The session keeps the lock after the transaction.
WITH got AS MATERIALIZED (SELECT CASE WHEN :locked = 1 THEN true
    WHEN :mode = 'shared' THEN pg_try_advisory_lock_shared(:key)
    ELSE pg_try_advisory_lock(:key) END AS yes),
counted AS (
    INSERT INTO leaselock_lock AS l (name, token, since)
    SELECT :name, greatest(f.value::bigint + 1, n.micros,
        1 + coalesce((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0)), n.micros
    FROM got, leaselock_fact f,
         (SELECT {now} AS micros) n
    WHERE got.yes AND f.key = 'floor'
    ON CONFLICT (name) DO UPDATE SET
        token = greatest(l.token + 1, excluded.token), since = excluded.since
    RETURNING token, since)
INSERT INTO leaselock_session
    (session, protocol, name, id, client, token, backend, liveness_key, metadata, since, mode)
SELECT :session, :protocol, :name, :id, :client, c.token, :backend, :liveness_key, :metadata, c.since, :mode
FROM counted c, (SELECT pg_try_advisory_lock(:liveness_key)) signed
{upsert session: protocol, name, id, client, token, backend, liveness_key, metadata, since, mode}
RETURNING token

-- advisory wait
-- Waits are short, because CREATE INDEX CONCURRENTLY waits for every waiting statement.
BEGIN; SET LOCAL lock_timeout = :timeout; SELECT CASE WHEN :mode = 'shared'
    THEN pg_advisory_lock_shared(:key) ELSE pg_advisory_lock(:key) END; COMMIT

-- advisory weaken
-- A writer becomes a reader. At no time does the session have neither lock.
SELECT pg_advisory_lock_shared(:key); SELECT pg_advisory_unlock(:key);
UPDATE leaselock_session SET mode = 'shared' WHERE session = :session AND id = :id

-- advisory release
SELECT pg_advisory_unlock_all()

-- begin transaction
BEGIN ISOLATION LEVEL READ COMMITTED

-- row try
SELECT name, pg_try_advisory_lock(:liveness_key) FROM leaselock_row WHERE name = :name
FOR UPDATE SKIP LOCKED

-- row try shared
SELECT name, pg_try_advisory_lock(:liveness_key) FROM leaselock_row WHERE name = :name
FOR SHARE SKIP LOCKED

-- row wait
BEGIN; SET LOCAL lock_timeout = :timeout; SELECT pg_try_advisory_lock(:liveness_key);
SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE

-- row wait shared
BEGIN; SET LOCAL lock_timeout = :timeout; SELECT pg_try_advisory_lock(:liveness_key);
SELECT name FROM leaselock_row WHERE name = :name FOR SHARE

-- row release
ROLLBACK; SELECT pg_advisory_unlock_all()

-- row token
-- Runs on another connection, so that the token is committed whatever becomes of the hold. It checks
-- that the holding session is alive while the counter is locked, so tokens rise in grant order.
WITH counted AS (
    INSERT INTO leaselock_lock AS l (name, token, since)
    SELECT :name, greatest(f.value::bigint + 1, n.micros,
        1 + coalesce((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0)), n.micros
    FROM leaselock_fact f,
         (SELECT {now} AS micros) n
    WHERE f.key = 'floor'
    ON CONFLICT (name) DO UPDATE SET
        token = greatest(l.token + 1, excluded.token), since = excluded.since
    RETURNING token, since)
INSERT INTO leaselock_session AS s
    (session, protocol, name, id, client, token, backend, liveness_key, metadata, since, mode)
SELECT :session, :protocol, :name, :id, :client, c.token, :backend, :liveness_key, :metadata, c.since, :mode
FROM counted c
{upsert session: protocol, name, id, client, token, backend, liveness_key, metadata, since, mode}
RETURNING token, NOT pg_try_advisory_xact_lock_shared(:liveness_key)

-- sessions
-- A row of no known protocol may be of this one: it is shown, with a mode that does not exist. So is
-- one whose session cannot be found, because its columns contradict each other.
SELECT s.name, s.id, s.client, s.token, s.backend, s.metadata, s.since,
    CASE WHEN {damaged} THEN 'of no session'
        WHEN s.protocol = :protocol THEN s.mode ELSE 'of the protocol ' || s.protocol END
FROM leaselock_session s
WHERE (s.protocol = :protocol OR s.protocol NOT IN ('row', 'advisory'))
  AND (:name = '' OR s.name = :name)
  AND ({damaged} OR EXISTS (SELECT 1 FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted AND p.pid = s.backend
      AND (p.classid::bigint << 32 | p.objid::bigint) = s.liveness_key))
ORDER BY s.name, s.since

-- holding sessions
-- Looks at holders only, so that the cost does not grow with the number of waiters.
SELECT s.name, s.id, s.client, s.token, s.backend, s.metadata, s.since, s.mode
FROM leaselock_session s
WHERE s.protocol = :protocol AND s.name = :name AND s.token IS NOT NULL
  AND EXISTS (SELECT 1 FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted AND p.pid = s.backend
      AND (p.classid::bigint << 32 | p.objid::bigint) = s.liveness_key)
ORDER BY s.token

-- advisory stranger
-- A session without a record that has the lock: another program's, or a lock inside a transaction. A
-- session of ours whose record names another lock counts, too, unless that record is of its last hold.
-- Each subquery is executed once: correlated ones are planned to be so dear that they are compiled.
SELECT p.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''),
    coalesce((extract(epoch FROM a.xact_start) * 1000000)::bigint, 0),
    CASE p.mode WHEN 'ShareLock' THEN 'shared' ELSE 'exclusive' END
FROM pg_locks p LEFT JOIN pg_stat_activity a ON a.pid = p.pid
WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted
  AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (p.classid::bigint << 32 | p.objid::bigint) = :key
  AND coalesce(p.pid, 0) NOT IN (SELECT s.backend FROM leaselock_session s
    WHERE s.name = :name OR (s.backend, s.liveness_key) NOT IN (
      SELECT q.pid, q.classid::bigint << 32 | q.objid::bigint FROM pg_locks q
      WHERE q.locktype = 'advisory' AND q.objsubid = 1 AND q.granted AND q.pid IS NOT NULL))
LIMIT 1

-- row stranger
-- The same for the row, whose xmax is the transaction that has locked it.
SELECT p.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''),
    coalesce((extract(epoch FROM a.xact_start) * 1000000)::bigint, 0), 'exclusive'
FROM leaselock_row r
JOIN pg_locks p ON p.locktype = 'transactionid' AND p.granted AND p.transactionid = r.xmax
LEFT JOIN pg_stat_activity a ON a.pid = p.pid
WHERE r.name = :name AND coalesce(p.pid, 0) NOT IN (SELECT s.backend FROM leaselock_session s
    WHERE s.name = :name OR (s.backend, s.liveness_key) NOT IN (
      SELECT q.pid, q.classid::bigint << 32 | q.objid::bigint FROM pg_locks q
      WHERE q.locktype = 'advisory' AND q.objsubid = 1 AND q.granted AND q.pid IS NOT NULL))
LIMIT 1

-- end session
-- Only while it is that of this hold: a session is used for the next one.
SELECT pg_terminate_backend(p.pid) FROM pg_locks p
WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted AND p.pid = :backend
  AND (p.classid::bigint << 32 | p.objid::bigint) = :liveness_key

-- end stranger
SELECT pg_terminate_backend(:backend::integer)
