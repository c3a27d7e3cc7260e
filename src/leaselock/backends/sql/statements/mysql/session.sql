-- tenancy
-- What would end an idle session is overridden: while a lock is held we speak often enough, and
-- when we cannot, the server is to end the session after so long, and no sooner.
SET SESSION wait_timeout = :silence; SET SESSION innodb_lock_wait_timeout = 1

-- advisory take
-- The lock, a token from the counter, and who has it, in one round trip. Only who got the lock
-- counts; the session keeps it when the transactions of these statements are over.
DO GET_LOCK(:key, 0);
DO IF(IS_USED_LOCK(:key) = CONNECTION_ID(), GET_LOCK(:sign, 0), 0);
INSERT INTO leaselock_lock (name, token, since)
SELECT :name, LAST_INSERT_ID(GREATEST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    1 + (SELECT CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor'))),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))),
    since = VALUES(since);
INSERT INTO leaselock_seat
    (session, protocol, name, holder, client, token, backend, sign, about, since)
SELECT :session, :protocol, :name, :holder, :client, LAST_INSERT_ID(), :backend, :sign, :about,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()
ON DUPLICATE KEY UPDATE protocol = VALUES(protocol), name = VALUES(name),
    holder = VALUES(holder), client = VALUES(client), token = VALUES(token),
    backend = VALUES(backend), sign = VALUES(sign), about = VALUES(about), since = VALUES(since);
SELECT LAST_INSERT_ID() FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()

-- advisory retake
-- The same where the name and the session have their rows already: two statements instead of five.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
    since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE name = :name AND GET_LOCK(:key, 0) = 1

-- advisory renote
UPDATE leaselock_seat SET protocol = :protocol, name = :name, holder = :holder, client = :client,
    token = LAST_INSERT_ID(), sign = :sign, about = :about,
    since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE session = :session AND IS_USED_LOCK(:key) = CONNECTION_ID() AND GET_LOCK(:sign, 0) = 1

-- advisory wait
SELECT GET_LOCK(:key, :patience / 1000)

-- advisory free
DO RELEASE_ALL_LOCKS()

-- seal
-- What shows that the session lives.
DO GET_LOCK(:sign, 0)

-- open
START TRANSACTION

-- close
COMMIT

-- row try
SELECT name FROM leaselock_row WHERE name = :name AND GET_LOCK(:sign, 0) = 1 FOR UPDATE SKIP LOCKED

-- row wait
START TRANSACTION; DO GET_LOCK(:sign, 0); SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE

-- row free
ROLLBACK; DO RELEASE_ALL_LOCKS()

-- undo
ROLLBACK

-- row there
SELECT COUNT(*) FROM leaselock_row WHERE name = :name

-- row make
INSERT IGNORE INTO leaselock_row (name) VALUES (:name)

-- row count
-- On another connection, so that it is committed whatever becomes of the hold. The session that
-- holds is seen to live while the counter is locked: so tokens rise in the order of the holds.
INSERT INTO leaselock_lock (name, token, since)
VALUES (:name, LAST_INSERT_ID(GREATEST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    1 + (SELECT CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor'))), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))),
    since = VALUES(since);
INSERT INTO leaselock_seat
    (session, protocol, name, holder, client, token, backend, sign, about, since)
VALUES (:session, :protocol, :name, :holder, :client, LAST_INSERT_ID(), :backend, :sign, :about,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE protocol = VALUES(protocol), name = VALUES(name),
    holder = VALUES(holder), client = VALUES(client), token = VALUES(token),
    backend = VALUES(backend), sign = VALUES(sign), about = VALUES(about), since = VALUES(since);
SELECT LAST_INSERT_ID(), IS_USED_LOCK(:sign) = :backend

-- row recount
-- The same where the name and the session have their rows already. No transaction is needed: who is
-- seen to live afterwards had the lock when it counted.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
    since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE name = :name

-- row renote
UPDATE leaselock_seat SET protocol = :protocol, name = :name, holder = :holder, client = :client,
    token = LAST_INSERT_ID(), sign = :sign, about = :about,
    since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
WHERE session = :session AND IS_USED_LOCK(:sign) = :backend

-- seat
-- One that waits: it has no token yet.
INSERT INTO leaselock_seat
    (session, protocol, name, holder, client, token, backend, sign, about, since)
VALUES (:session, :protocol, :name, :holder, :client, NULL, :backend, :sign, :about, :since)
ON DUPLICATE KEY UPDATE protocol = VALUES(protocol), name = VALUES(name),
    holder = VALUES(holder), client = VALUES(client), token = VALUES(token),
    backend = VALUES(backend), sign = VALUES(sign), about = VALUES(about), since = VALUES(since);
SELECT GET_LOCK(:sign, 0)

-- alive
SELECT 1

-- seats
SELECT name, holder, client, token, backend, about, since FROM leaselock_seat
WHERE protocol = :protocol AND (:name = '' OR name = :name) AND IS_USED_LOCK(sign) = backend
ORDER BY name, since

-- seat of holder
-- Of those that hold, not of all who wait: a crowd is not looked through by each of its members.
SELECT name, holder, client, token, backend, about, since FROM leaselock_seat
WHERE protocol = :protocol AND name = :name AND token IS NOT NULL AND IS_USED_LOCK(sign) = backend
ORDER BY token DESC LIMIT 1

-- end session
KILL :backend
