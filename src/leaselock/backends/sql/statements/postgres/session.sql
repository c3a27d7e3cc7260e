-- tenancy
-- What would end an idle session is overridden: while a lock is held we speak often enough, and
-- when we cannot, the server is to end the session after so long, and no sooner. One whose client
-- has gone while it waits for a lock is to notice that.
SELECT set_config(s.name, w.setting, false), s.name
FROM pg_settings s JOIN (VALUES
    ('idle_session_timeout', :silence), ('idle_in_transaction_session_timeout', :silence),
    ('transaction_timeout', '0'), ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('client_connection_check_interval', '100'), ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '3'), ('tcp_keepalives_count', '3')
) w (name, setting) ON s.name = w.name

-- advisory take
-- The lock, a token from the counter, and who has it: one statement, one transaction. Only who
-- got the lock counts, and the session keeps the lock when the transaction is over.
WITH got AS MATERIALIZED (SELECT pg_try_advisory_lock(:key) AS yes),
counted AS (
    INSERT INTO leaselock_lock AS l (name, token, since)
    SELECT :name, greatest(f.value::bigint + 1, n.micros), n.micros
    FROM got, leaselock_fact f,
         (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) n
    WHERE got.yes AND f.key = 'floor'
    ON CONFLICT (name) DO UPDATE SET
        token = greatest(l.token + 1, excluded.token), since = excluded.since
    RETURNING token, since)
INSERT INTO leaselock_seat
    (session, protocol, name, holder, client, token, backend, sign, about, since)
SELECT :session, :protocol, :name, :holder, :client, c.token, :backend, :sign, :about, c.since
FROM counted c, (SELECT pg_try_advisory_lock(:sign)) signed
ON CONFLICT (session) DO UPDATE SET
    protocol = excluded.protocol, name = excluded.name, holder = excluded.holder,
    client = excluded.client, token = excluded.token, backend = excluded.backend,
    sign = excluded.sign, about = excluded.about, since = excluded.since
RETURNING token

-- advisory wait
-- Never for long at a time: CREATE INDEX CONCURRENTLY waits for every statement that waits.
BEGIN; SET LOCAL lock_timeout = :patience; SELECT pg_advisory_lock(:key); COMMIT

-- advisory free
SELECT pg_advisory_unlock_all()

-- seal
-- What shows that the session lives.
SELECT pg_try_advisory_lock(:sign)

-- open
BEGIN ISOLATION LEVEL READ COMMITTED

-- close
COMMIT

-- row try
SELECT name, pg_try_advisory_lock(:sign) FROM leaselock_row WHERE name = :name
FOR UPDATE SKIP LOCKED

-- row wait
BEGIN; SET LOCAL lock_timeout = :patience; SELECT pg_try_advisory_lock(:sign);
SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE

-- row free
ROLLBACK; SELECT pg_advisory_unlock_all()

-- undo
ROLLBACK

-- row there
SELECT count(*) FROM leaselock_row WHERE name = :name

-- row make
INSERT INTO leaselock_row (name) VALUES (:name) ON CONFLICT DO NOTHING

-- row count
-- On another connection, so that it is committed whatever becomes of the hold. The session that
-- holds is seen to live while the counter is locked: so tokens rise in the order of the holds.
WITH counted AS (
    INSERT INTO leaselock_lock AS l (name, token, since)
    SELECT :name, greatest(f.value::bigint + 1, n.micros), n.micros
    FROM leaselock_fact f,
         (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) n
    WHERE f.key = 'floor'
    ON CONFLICT (name) DO UPDATE SET
        token = greatest(l.token + 1, excluded.token), since = excluded.since
    RETURNING token, since)
INSERT INTO leaselock_seat AS s
    (session, protocol, name, holder, client, token, backend, sign, about, since)
SELECT :session, :protocol, :name, :holder, :client, c.token, :backend, :sign, :about, c.since
FROM counted c
ON CONFLICT (session) DO UPDATE SET
    protocol = excluded.protocol, name = excluded.name, holder = excluded.holder,
    client = excluded.client, token = excluded.token, backend = excluded.backend,
    sign = excluded.sign, about = excluded.about, since = excluded.since
RETURNING token, NOT pg_try_advisory_xact_lock_shared(:sign)

-- seat
-- One that waits: it has no token yet.
INSERT INTO leaselock_seat
    (session, protocol, name, holder, client, token, backend, sign, about, since)
VALUES (:session, :protocol, :name, :holder, :client, NULL, :backend, :sign, :about, :since)
ON CONFLICT (session) DO UPDATE SET
    protocol = excluded.protocol, name = excluded.name, holder = excluded.holder,
    client = excluded.client, token = NULL, backend = excluded.backend,
    sign = excluded.sign, about = excluded.about, since = excluded.since;
SELECT pg_try_advisory_lock(:sign)

-- alive
SELECT 1

-- seats
SELECT s.name, s.holder, s.client, s.token, s.backend, s.about, s.since FROM leaselock_seat s
WHERE s.protocol = :protocol AND (:name = '' OR s.name = :name)
  AND EXISTS (SELECT 1 FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted AND p.pid = s.backend
      AND (p.classid::bigint << 32 | p.objid::bigint) = s.sign)
ORDER BY s.name, s.since

-- seat of holder
-- Of those that hold, not of all who wait: a crowd is not looked through by each of its members.
SELECT s.name, s.holder, s.client, s.token, s.backend, s.about, s.since FROM leaselock_seat s
WHERE s.protocol = :protocol AND s.name = :name AND s.token IS NOT NULL
  AND EXISTS (SELECT 1 FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted AND p.pid = s.backend
      AND (p.classid::bigint << 32 | p.objid::bigint) = s.sign)
ORDER BY s.token DESC LIMIT 1

-- end session
SELECT pg_terminate_backend(:backend::integer)
