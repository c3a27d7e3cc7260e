-- The locks of one machine. Times in "expires" and "until" are seconds of the boot clock.

-- One row per name. A free lock keeps its row, which has its last token.
CREATE TABLE IF NOT EXISTS lock (
    name    TEXT PRIMARY KEY,
    token   INTEGER NOT NULL,
    id      TEXT,
    client  TEXT,
    lifetime TEXT,
    expires REAL,
    metadata TEXT,
    since   REAL
);

-- One row per waiter, in the order of the tickets.
CREATE TABLE IF NOT EXISTS waiter (
    name   TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    id     TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    lease  REAL NOT NULL,
    metadata TEXT NOT NULL,
    since  REAL NOT NULL,
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Cancelled claims, of which a late request may still arrive.
CREATE TABLE IF NOT EXISTS tombstone (
    id    TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;

-- "schema" is the version of this layout, "boot" identifies the boot clock of the times here. Every new
-- token is greater than "floor", the greatest token of the rows that were pruned.
CREATE TABLE IF NOT EXISTS fact (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
