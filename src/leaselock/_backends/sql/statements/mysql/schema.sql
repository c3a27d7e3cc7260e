-- The version of the schema, and the highest token of names whose rows were deleted ("floor").
-- Texts are bytes, so that no collation treats two names as equal.
CREATE TABLE IF NOT EXISTS leaselock_fact (
    fact  VARBINARY(32) PRIMARY KEY,
    value VARBINARY(255) NOT NULL
) ENGINE = InnoDB;

-- One row per name: its exclusive holder by protocol "lease", and the token counter that all protocols
-- share. Times are microseconds since 1970 by the clock of the server. "pending" counts
-- the other holds, the waiters and the tombstones of the name. While it is 0, one statement acquires or releases the lock.
-- The lock stays taken until "free_from", even if its hold ends before.
CREATE TABLE IF NOT EXISTS leaselock_lock (
    name    VARBINARY(255) PRIMARY KEY,
    token   BIGINT NOT NULL,
    pending  INT NOT NULL DEFAULT 0,
    id  VARBINARY(80),
    client  VARBINARY(64),
    lifetime     VARBINARY(8),
    expires BIGINT,
    metadata   BLOB,
    since   BIGINT,
    free_from BIGINT,
    step    INT NOT NULL DEFAULT 0,
    offered INT NOT NULL DEFAULT 0,
    permits BIGINT NOT NULL DEFAULT 0,
    doubt   BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- One row per hold of protocol "lease" that is not exclusive.
CREATE TABLE IF NOT EXISTS leaselock_hold (
    name    VARBINARY(255) NOT NULL,
    id  VARBINARY(80) NOT NULL,
    client  VARBINARY(64) NOT NULL,
    lifetime     VARBINARY(8) NOT NULL,
    token   BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    metadata   BLOB NOT NULL,
    since   BIGINT NOT NULL,
    mode    VARBINARY(16) NOT NULL,
    permits BIGINT NOT NULL,
    step    INT NOT NULL,
    offered INT NOT NULL,
    PRIMARY KEY (name, id)
) ENGINE = InnoDB;

-- One row per waiter of protocol "lease", in the order of the tickets. A waiter is dead if its row
-- has expired, or if no session holds the named lock "liveness_key".
CREATE TABLE IF NOT EXISTS leaselock_waiter (
    name    VARBINARY(255) NOT NULL,
    ticket  BIGINT NOT NULL,
    id  VARBINARY(80) NOT NULL,
    client  VARBINARY(64) NOT NULL,
    lease   BIGINT NOT NULL,
    metadata   BLOB NOT NULL,
    since   BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    polls   INT NOT NULL,
    liveness_key    VARBINARY(64),
    mode    VARBINARY(16) NOT NULL,
    permits BIGINT NOT NULL,
    PRIMARY KEY (name, ticket),
    UNIQUE KEY (id)
) ENGINE = InnoDB;

-- Claims that were released while a request of theirs may still arrive, and claims that watch the
-- lock, whose ids have a prefix.
CREATE TABLE IF NOT EXISTS leaselock_tombstone (
    name    VARBINARY(255) NOT NULL,
    id  VARBINARY(80) NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (name, id)
) ENGINE = InnoDB;

-- Wake-ups for clients that poll.
CREATE TABLE IF NOT EXISTS leaselock_wake (
    client  VARBINARY(64) NOT NULL,
    id  VARBINARY(80) NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (client, id)
) ENGINE = InnoDB;

-- The rows that protocol "row" locks. They are found by a unique index, so no other rows are locked.
CREATE TABLE IF NOT EXISTS leaselock_row (
    name VARBINARY(255) PRIMARY KEY
) ENGINE = InnoDB;

-- Holders and waiters of the protocols "row" and "advisory": one row per connection. A row is valid
-- while its session holds the lock "liveness_key".
CREATE TABLE IF NOT EXISTS leaselock_session (
    session  VARBINARY(80) PRIMARY KEY,
    protocol VARBINARY(16) NOT NULL,
    name     VARBINARY(255) NOT NULL,
    id   VARBINARY(80) NOT NULL,
    client   VARBINARY(64) NOT NULL,
    token    BIGINT,
    backend  BIGINT NOT NULL,
    liveness_key     VARBINARY(64) NOT NULL,
    metadata    BLOB NOT NULL,
    since    BIGINT NOT NULL,
    mode     VARBINARY(16) NOT NULL,
    KEY (protocol, name)
) ENGINE = InnoDB;

INSERT IGNORE INTO leaselock_fact (fact, value) VALUES ('schema', '1'), ('floor', '0');
