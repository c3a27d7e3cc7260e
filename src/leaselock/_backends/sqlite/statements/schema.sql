-- The locks of one machine. Times in "expires" and "until" are seconds of the boot clock.

-- One row per name, with its exclusive hold. A free lock keeps its row, which has its last token. While
-- there are other holds, "id" is empty. "permits" is the limit of a semaphore. A hold is "offered" until its
-- waiter confirms it. "lapsed_offer" is the time of the last one that was not confirmed: waiters that have not asked
-- since are passed over. The lock stays taken until "free_from", even if its hold ends before.
CREATE TABLE IF NOT EXISTS lock (
    name    TEXT PRIMARY KEY,
    token   INTEGER NOT NULL,
    id      TEXT,
    client  TEXT,
    lifetime TEXT,
    expires REAL,
    metadata TEXT,
    since   REAL,
    free_from REAL NOT NULL DEFAULT 0,
    step    INTEGER NOT NULL DEFAULT 0,
    offered INTEGER NOT NULL DEFAULT 0,
    permits INTEGER NOT NULL DEFAULT 0,
    lapsed_offer REAL NOT NULL DEFAULT 0
);

-- One row per hold that is not exclusive.
CREATE TABLE IF NOT EXISTS hold (
    name    TEXT NOT NULL,
    id      TEXT NOT NULL,
    client  TEXT NOT NULL,
    lifetime TEXT NOT NULL,
    token   INTEGER NOT NULL,
    expires REAL NOT NULL,
    metadata TEXT NOT NULL,
    since   REAL NOT NULL,
    mode    TEXT NOT NULL,
    permits INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    offered INTEGER NOT NULL,
    PRIMARY KEY (name, id)
) WITHOUT ROWID;

-- One row per waiter, in the order of the tickets.
CREATE TABLE IF NOT EXISTS waiter (
    name   TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    id     TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    lease  REAL NOT NULL,
    metadata TEXT NOT NULL,
    since  REAL NOT NULL,
    mode   TEXT NOT NULL,
    permits INTEGER NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Cancelled claims, of which a late request may still arrive.
CREATE TABLE IF NOT EXISTS tombstone (
    id    TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;

-- Clients to notify when a hold of the lock begins or ends.
CREATE TABLE IF NOT EXISTS watcher (
    name   TEXT NOT NULL,
    id     TEXT NOT NULL,
    client TEXT NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (name, id)
) WITHOUT ROWID;

-- "schema" is the version of this layout, "boot" identifies the boot clock of the times here. Every new
-- token is greater than "floor", the greatest token of the rows that were pruned.
CREATE TABLE IF NOT EXISTS fact (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
