-- The version of the schema, and the highest token of names whose rows were deleted ("floor").
-- Texts are bytes, so that no collation treats two names as equal.
CREATE TABLE IF NOT EXISTS leaselock_fact (
    {fact} {text 32} PRIMARY KEY,
    value {text 255} NOT NULL
){options};

-- One row per name: its exclusive holder by protocol "lease", and the token counter that all protocols
-- share. Times are microseconds since 1970 by the clock of the server. "pending" counts
-- the other holds, the waiters, the watchers and the tombstones of the name. While it is 0, one statement acquires or
-- releases the lock.
-- The lock stays taken until "free_from", even if its hold ends before. "permits" is the limit of a semaphore. A hold
-- is "offered" until its waiter confirms it. "lapsed_offer" is the time of the last one that was not confirmed: waiters
-- that have not asked since are passed over.
CREATE TABLE IF NOT EXISTS leaselock_lock (
    name {name} PRIMARY KEY,
    token bigint NOT NULL,
    pending integer NOT NULL DEFAULT 0,
    id {text 80},
    client {text 64},
    lifetime {text 8},
    expires bigint,
    metadata {long text},
    since bigint,
    free_from bigint,
    step integer NOT NULL DEFAULT 0,
    offered integer NOT NULL DEFAULT 0,
    permits bigint NOT NULL DEFAULT 0,
    lapsed_offer bigint NOT NULL DEFAULT 0
){options of updated rows};

-- One row per hold of protocol "lease" that is not exclusive.
CREATE TABLE IF NOT EXISTS leaselock_hold (
    name {name} NOT NULL,
    id {text 80} NOT NULL,
    client {text 64} NOT NULL,
    lifetime {text 8} NOT NULL,
    token bigint NOT NULL,
    expires bigint NOT NULL,
    metadata {long text} NOT NULL,
    since bigint NOT NULL,
    mode {text 16} NOT NULL,
    permits bigint NOT NULL,
    step integer NOT NULL,
    offered integer NOT NULL,
    PRIMARY KEY (name, id)
){options};

-- One row per waiter of protocol "lease", in the order of the tickets. A waiter is dead if its row
-- has expired, or if no session holds the lock "liveness_key" (GET_LOCK, or advisory).
CREATE TABLE IF NOT EXISTS leaselock_waiter (
    name {name} NOT NULL,
    ticket bigint NOT NULL,
    id {text 80} NOT NULL,
    client {text 64} NOT NULL,
    lease bigint NOT NULL,
    metadata {long text} NOT NULL,
    since bigint NOT NULL,
    expires bigint NOT NULL,
    polls {yes or no} NOT NULL,
    liveness_key {liveness key},
    mode {text 16} NOT NULL,
    permits bigint NOT NULL,
    PRIMARY KEY (name, ticket),
    UNIQUE (id)
){options};

-- Claims that were released while a request of theirs may still arrive, and claims that watch the
-- lock, whose ids have a prefix.
CREATE TABLE IF NOT EXISTS leaselock_tombstone (
    name {name} NOT NULL,
    id {text 80} NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (name, id)
){options};

-- Wake-ups for clients that poll.
CREATE TABLE IF NOT EXISTS leaselock_wake (
    client {text 64} NOT NULL,
    id {text 80} NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (client, id)
){options};

-- The rows that protocol "row" locks. They are found by a unique index, so no other rows are locked.
CREATE TABLE IF NOT EXISTS leaselock_row (
    name {name} PRIMARY KEY
){options};

-- Holders and waiters of the protocols "row" and "advisory": one row per connection. A row is valid
-- while its session holds the lock "liveness_key".
CREATE TABLE IF NOT EXISTS leaselock_session (
    session {text 80} PRIMARY KEY,
    protocol {text 16} NOT NULL,
    name {name} NOT NULL,
    id {text 80} NOT NULL,
    client {text 64} NOT NULL,
    token bigint,
    backend bigint NOT NULL,
    liveness_key {liveness key} NOT NULL,
    metadata {long text} NOT NULL,
    since bigint NOT NULL,
    mode {text 16} NOT NULL{index in the table}
){options};

{index of its own};

{insert} INTO leaselock_fact ({fact}, value) VALUES ('schema', '1'), ('floor', '0'){unless there};
