-- The version of the schema, and the highest token of names whose rows were deleted ("floor").
CREATE TABLE IF NOT EXISTS leaselock_fact (
    key   text PRIMARY KEY,
    value text NOT NULL
);

-- One row per name: its exclusive holder by protocol "lease", and the token counter that all protocols
-- share. Times are microseconds since 1970 by the clock of the server. "pending" counts
-- the other holds, the waiters and the tombstones of the name. While it is 0, one statement acquires or releases the lock.
-- The lock stays taken until "free_from", even if its hold ends before. "permits" is the limit of a semaphore. A hold
-- is "offered" until its waiter confirms it, and waiters that have not asked since "doubt" are passed over.
CREATE TABLE IF NOT EXISTS leaselock_lock (
    name    text COLLATE "C" PRIMARY KEY,
    token   bigint NOT NULL,
    pending  integer NOT NULL DEFAULT 0,
    id  text,
    client  text,
    lifetime     text,
    expires bigint,
    metadata   text,
    since   bigint,
    free_from bigint,
    step    integer NOT NULL DEFAULT 0,
    offered integer NOT NULL DEFAULT 0,
    permits bigint NOT NULL DEFAULT 0,
    doubt   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- One row per hold of protocol "lease" that is not exclusive.
CREATE TABLE IF NOT EXISTS leaselock_hold (
    name    text COLLATE "C" NOT NULL,
    id  text NOT NULL,
    client  text NOT NULL,
    lifetime     text NOT NULL,
    token   bigint NOT NULL,
    expires bigint NOT NULL,
    metadata   text NOT NULL,
    since   bigint NOT NULL,
    mode    text NOT NULL,
    permits bigint NOT NULL,
    step    integer NOT NULL,
    offered integer NOT NULL,
    PRIMARY KEY (name, id)
);

-- One row per waiter of protocol "lease", in the order of the tickets. A waiter is dead if its row
-- has expired, or if no session holds the advisory lock "liveness_key".
CREATE TABLE IF NOT EXISTS leaselock_waiter (
    name    text COLLATE "C" NOT NULL,
    ticket  bigint NOT NULL,
    id  text NOT NULL UNIQUE,
    client  text NOT NULL,
    lease   bigint NOT NULL,
    metadata   text NOT NULL,
    since   bigint NOT NULL,
    expires bigint NOT NULL,
    polls   boolean NOT NULL,
    liveness_key    bigint,
    mode    text NOT NULL,
    permits bigint NOT NULL,
    PRIMARY KEY (name, ticket)
);

-- Claims that were released while a request of theirs may still arrive, and claims that watch the
-- lock, whose ids have a prefix.
CREATE TABLE IF NOT EXISTS leaselock_tombstone (
    name    text COLLATE "C" NOT NULL,
    id  text NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (name, id)
);

-- Wake-ups for clients that poll.
CREATE TABLE IF NOT EXISTS leaselock_wake (
    client  text NOT NULL,
    id  text NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (client, id)
);

-- The rows that protocol "row" locks.
CREATE TABLE IF NOT EXISTS leaselock_row (
    name text COLLATE "C" PRIMARY KEY
);

-- Holders and waiters of the protocols "row" and "advisory": one row per connection. A row is valid
-- while its session holds the lock "liveness_key".
CREATE TABLE IF NOT EXISTS leaselock_session (
    session  text PRIMARY KEY,
    protocol text NOT NULL,
    name     text COLLATE "C" NOT NULL,
    id   text NOT NULL,
    client   text NOT NULL,
    token    bigint,
    backend  bigint NOT NULL,
    liveness_key     bigint NOT NULL,
    metadata    text NOT NULL,
    since    bigint NOT NULL,
    mode     text NOT NULL
);

CREATE INDEX IF NOT EXISTS leaselock_session_name ON leaselock_session (protocol, name);

INSERT INTO leaselock_fact (key, value) VALUES ('schema', '1'), ('floor', '0')
ON CONFLICT (key) DO NOTHING;
