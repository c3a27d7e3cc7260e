-- What the tables are, and what was given out at most by names whose rows are gone ("floor").
-- Texts are bytes: no collation makes two names one, or one name two.
CREATE TABLE IF NOT EXISTS leaselock_fact (
    fact  VARBINARY(32) PRIMARY KEY,
    value VARBINARY(255) NOT NULL
) ENGINE = InnoDB;

-- One row per name: who holds it by protocol "lease", and the counter of its tokens, which all
-- protocols share. Times are microseconds since 1970 by the clock of the server. "beside" counts
-- the waiters and graves of the name: while it is 0, one statement is enough to take or to free.
CREATE TABLE IF NOT EXISTS leaselock_lock (
    name    VARBINARY(255) PRIMARY KEY,
    token   BIGINT NOT NULL,
    beside  INT NOT NULL DEFAULT 0,
    holder  VARBINARY(80),
    client  VARBINARY(64),
    tie     VARBINARY(8),
    expires BIGINT,
    about   BLOB,
    since   BIGINT
) ENGINE = InnoDB;

-- One row per waiter of protocol "lease". Tickets give the order. A row is dead when it "expires",
-- or when nobody has the named lock "sign" any more.
CREATE TABLE IF NOT EXISTS leaselock_waiter (
    name    VARBINARY(255) NOT NULL,
    ticket  BIGINT NOT NULL,
    holder  VARBINARY(80) NOT NULL,
    client  VARBINARY(64) NOT NULL,
    lease   BIGINT NOT NULL,
    about   BLOB NOT NULL,
    since   BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    polls   INT NOT NULL,
    sign    VARBINARY(64),
    PRIMARY KEY (name, ticket),
    UNIQUE KEY (holder)
) ENGINE = InnoDB;

-- Claims given up while a question of theirs may still arrive.
CREATE TABLE IF NOT EXISTS leaselock_grave (
    name    VARBINARY(255) NOT NULL,
    holder  VARBINARY(80) NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (name, holder)
) ENGINE = InnoDB;

-- Wake-ups for clients that have to look for them.
CREATE TABLE IF NOT EXISTS leaselock_wake (
    client  VARBINARY(64) NOT NULL,
    holder  VARBINARY(80) NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (client, holder)
) ENGINE = InnoDB;

-- The rows that protocol "row" locks. They are found by a unique index, so only they are locked.
CREATE TABLE IF NOT EXISTS leaselock_row (
    name VARBINARY(255) PRIMARY KEY
) ENGINE = InnoDB;

-- Who holds or waits by the protocols "row" and "advisory": one row per connection. It is true
-- for as long as the session has the lock of the holder's sign.
CREATE TABLE IF NOT EXISTS leaselock_seat (
    session  VARBINARY(80) PRIMARY KEY,
    protocol VARBINARY(16) NOT NULL,
    name     VARBINARY(255) NOT NULL,
    holder   VARBINARY(80) NOT NULL,
    client   VARBINARY(64) NOT NULL,
    token    BIGINT,
    backend  BIGINT NOT NULL,
    sign     VARBINARY(64) NOT NULL,
    about    BLOB NOT NULL,
    since    BIGINT NOT NULL,
    KEY (protocol, name)
) ENGINE = InnoDB;

INSERT IGNORE INTO leaselock_fact (fact, value) VALUES ('schema', '1'), ('floor', '0');
