-- The lock table of one machine. Times in "expires" are seconds of the boot clock.

-- One row per name. A free lock keeps its row, and with it the counter of its tokens.
CREATE TABLE IF NOT EXISTS lock (
    name    TEXT PRIMARY KEY,
    token   INTEGER NOT NULL,
    id  TEXT,
    client  TEXT,
    lifetime     TEXT,
    expires REAL,
    metadata   TEXT,
    since   REAL
);

-- One row per waiter. Tickets give the order.
CREATE TABLE IF NOT EXISTS waiter (
    name   TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    lease  REAL NOT NULL,
    metadata  TEXT NOT NULL,
    since  REAL NOT NULL,
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Claims given up while a question of theirs may still arrive.
CREATE TABLE IF NOT EXISTS grave (
    id TEXT PRIMARY KEY,
    until  REAL NOT NULL
) WITHOUT ROWID;

-- "schema" is the version of this layout, "boot" the boot and clock whose times are in here.
-- "floor" guards the tokens: none up to this one is given out again, whatever rows were pruned.
CREATE TABLE IF NOT EXISTS fact (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
