-- What the tables are, and what was given out at most by names whose rows are gone ("floor").
CREATE TABLE IF NOT EXISTS leaselock_fact (
    key   text PRIMARY KEY,
    value text NOT NULL
);

-- One row per name: who holds it by protocol "lease", and the counter of its tokens, which all
-- protocols share. Times are microseconds since 1970 by the clock of the server. "beside" counts
-- the waiters and graves of the name; while it is 0, one statement is enough to take or to free.
CREATE TABLE IF NOT EXISTS leaselock_lock (
    name    text COLLATE "C" PRIMARY KEY,
    token   bigint NOT NULL,
    beside  integer NOT NULL DEFAULT 0,
    holder  text,
    client  text,
    tie     text,
    expires bigint,
    about   text,
    since   bigint
) WITH (fillfactor = 50);

-- One row per waiter of protocol "lease". Tickets give the order. A row is dead when it "expires",
-- or when nobody has the advisory lock "sign" any more.
CREATE TABLE IF NOT EXISTS leaselock_waiter (
    name    text COLLATE "C" NOT NULL,
    ticket  bigint NOT NULL,
    holder  text NOT NULL UNIQUE,
    client  text NOT NULL,
    lease   bigint NOT NULL,
    about   text NOT NULL,
    since   bigint NOT NULL,
    expires bigint NOT NULL,
    polls   boolean NOT NULL,
    sign    bigint,
    PRIMARY KEY (name, ticket)
);

-- Claims given up while a question of theirs may still arrive.
CREATE TABLE IF NOT EXISTS leaselock_grave (
    name    text COLLATE "C" NOT NULL,
    holder  text NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (name, holder)
);

-- Wake-ups for clients that have to look for them.
CREATE TABLE IF NOT EXISTS leaselock_wake (
    client  text NOT NULL,
    holder  text NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (client, holder)
);

-- The rows that protocol "row" locks.
CREATE TABLE IF NOT EXISTS leaselock_row (
    name text COLLATE "C" PRIMARY KEY
);

-- Who holds or waits by the protocols "row" and "advisory": one row per connection. It is true
-- for as long as the session has the lock of the holder's sign.
CREATE TABLE IF NOT EXISTS leaselock_seat (
    session  text PRIMARY KEY,
    protocol text NOT NULL,
    name     text COLLATE "C" NOT NULL,
    holder   text NOT NULL,
    client   text NOT NULL,
    token    bigint,
    backend  bigint NOT NULL,
    sign     bigint NOT NULL,
    about    text NOT NULL,
    since    bigint NOT NULL
);

CREATE INDEX IF NOT EXISTS leaselock_seat_name ON leaselock_seat (protocol, name);

INSERT INTO leaselock_fact (key, value) VALUES ('schema', '1'), ('floor', '0')
ON CONFLICT (key) DO NOTHING;
