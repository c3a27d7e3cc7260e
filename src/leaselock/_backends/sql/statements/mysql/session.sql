-- Each session takes in this order: the liveness key (its row counts while that is held); the lock, which
-- is another key, or a row in a transaction; and the token of leaselock_lock. The session of a row lives
-- while its backend holds the liveness key: a key that another session can take is that of a dead one.
-- LAST_INSERT_ID(x) hands x to the next statement of the message, and to the client as the number of the
-- result. A statement that matched no row leaves the old value: what tells is how many rows it changed.

-- session settings
-- Overrides every setting that ends an idle session. A holder proves its life more often than that;
-- if it cannot, the server ends the session after :silence, and no sooner.
SET SESSION wait_timeout = :silence; SET SESSION innodb_lock_wait_timeout = 1

-- advisory acquire
-- Takes the lock, draws a token and records the holder in one round trip. A token is drawn only if
-- the lock was free. The session keeps the lock after these transactions.
DO GET_LOCK(:key, 0);
DO IF(IS_USED_LOCK(:key) = CONNECTION_ID(), GET_LOCK(:liveness_key, 0), 0);
INSERT INTO leaselock_lock (name, token, since)
SELECT :name, LAST_INSERT_ID(GREATEST({now},
    1 + (SELECT CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor'),
    1 + COALESCE((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0))),
    {now}
FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))),
    since = VALUES(since);
INSERT INTO leaselock_session
    (session, protocol, name, id, client, token, backend, liveness_key, metadata, since, mode)
SELECT :session, :protocol, :name, :id, :client, LAST_INSERT_ID(), :backend, :liveness_key, :metadata,
    {now}, :mode
FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()
{upsert session: protocol, name, id, client, token, backend, liveness_key, metadata, since, mode};
SELECT LAST_INSERT_ID() FROM DUAL WHERE IS_USED_LOCK(:key) = CONNECTION_ID()

-- advisory reacquire
-- The same if the name and the session have rows already: two statements instead of five.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        {now})),
    since = {now}
WHERE name = :name AND GET_LOCK(:key, 0) = 1

-- advisory update session
UPDATE leaselock_session SET protocol = :protocol, name = :name, id = :id, client = :client,
    token = LAST_INSERT_ID(), liveness_key = :liveness_key, metadata = :metadata, mode = :mode,
    since = {now}
WHERE session = :session AND IS_USED_LOCK(:key) = CONNECTION_ID() AND GET_LOCK(:liveness_key, 0) = 1

-- advisory wait
SELECT GET_LOCK(:key, :timeout / 1000)

-- advisory release
DO RELEASE_ALL_LOCKS()

-- begin transaction
START TRANSACTION

-- row try
SELECT name FROM leaselock_row WHERE name = :name AND GET_LOCK(:liveness_key, 0) = 1 FOR UPDATE SKIP LOCKED

-- row try shared
-- MySQL and MariaDB have different words for it; each reads the comment that is its own.
SELECT name FROM leaselock_row WHERE name = :name AND GET_LOCK(:liveness_key, 0) = 1
/*!80001 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */

-- row wait
START TRANSACTION; DO GET_LOCK(:liveness_key, 0); SELECT name FROM leaselock_row WHERE name = :name FOR UPDATE

-- row wait shared
START TRANSACTION; DO GET_LOCK(:liveness_key, 0); SELECT name FROM leaselock_row WHERE name = :name LOCK IN SHARE MODE

-- row release
ROLLBACK; DO RELEASE_ALL_LOCKS()

-- row token
-- Runs on another connection, so that the token is committed whatever becomes of the hold. It checks
-- that the holding session is alive while the counter is locked, so tokens rise in grant order.
INSERT INTO leaselock_lock (name, token, since)
VALUES (:name, LAST_INSERT_ID(GREATEST({now},
    1 + (SELECT CAST(value AS SIGNED) FROM leaselock_fact WHERE fact = 'floor'),
    1 + COALESCE((SELECT k.token FROM leaselock_lock k WHERE k.name = :name), 0))), {now})
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))),
    since = VALUES(since);
INSERT INTO leaselock_session
    (session, protocol, name, id, client, token, backend, liveness_key, metadata, since, mode)
VALUES (:session, :protocol, :name, :id, :client, LAST_INSERT_ID(), :backend, :liveness_key, :metadata,
    {now}, :mode)
{upsert session: protocol, name, id, client, token, backend, liveness_key, metadata, since, mode};
SELECT LAST_INSERT_ID(), IS_USED_LOCK(:liveness_key) = :backend

-- row new token
-- The same if the name and the session have rows already. No transaction is needed: a session that
-- is alive afterwards held the lock when the token was drawn.
UPDATE leaselock_lock SET token = LAST_INSERT_ID(GREATEST(token + 1,
        {now})),
    since = {now}
WHERE name = :name

-- row update session
UPDATE leaselock_session SET protocol = :protocol, name = :name, id = :id, client = :client,
    token = LAST_INSERT_ID(), liveness_key = :liveness_key, metadata = :metadata, mode = :mode,
    since = {now}
WHERE session = :session AND IS_USED_LOCK(:liveness_key) = :backend

-- sessions
-- A row of no known protocol may be of this one: it is shown, with a mode that does not exist. So is
-- one whose session cannot be found, because its columns contradict each other.
SELECT name, id, client, token, backend, metadata, since,
    CASE WHEN {damaged} THEN 'of no session'
        WHEN protocol = :protocol THEN mode ELSE CONCAT('of the protocol ', protocol) END
FROM leaselock_session
WHERE (protocol = :protocol OR protocol NOT IN ('row', 'advisory'))
    AND (:name = '' OR name = :name) AND IF({damaged}, TRUE, IS_USED_LOCK(liveness_key) = backend)
ORDER BY name, since

-- holding sessions
-- Looks at holders only, so that the cost does not grow with the number of waiters.
SELECT name, id, client, token, backend, metadata, since, mode FROM leaselock_session
WHERE protocol = :protocol AND name = :name AND token IS NOT NULL
    AND IF({damaged}, FALSE, IS_USED_LOCK(liveness_key) = backend)
ORDER BY token

-- advisory stranger
-- A session without a record that has the lock: another program's. A session of ours whose record
-- names another lock counts, too, unless that record is of its last hold.
SELECT u.id, '', '', 0, 'exclusive' FROM (SELECT IS_USED_LOCK(:key) AS id) u
WHERE u.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM leaselock_session s WHERE s.backend = u.id
    AND (s.name = :name OR IF({damaged}, TRUE, IS_USED_LOCK(s.liveness_key) <> s.backend
        OR IS_USED_LOCK(s.liveness_key) IS NULL)))

-- end session
-- Only while it is that of this hold: a session is used for the next one.
SET @ending = IF(IS_USED_LOCK(:liveness_key) = :backend, CONCAT('KILL ', :backend), 'DO 0');
PREPARE ending FROM @ending; EXECUTE ending

-- end stranger
KILL :backend
