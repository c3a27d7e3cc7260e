-- What each script that may grant a lock is given first.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off
--        5 format hash: the number of permits of an idle semaphore; else the record of the hold
-- ARGV   1 format: hash, string or vote   2 for how many ms the token is kept, or 0 for ever
--        3 longest lease in ms of a grant that is handed over
--        4 after how many ms a waiter asks again by itself
--        5 PUBLISH or SPUBLISH   6 beginning of the waiters' channels   7 Redisson's channel
--        For the text of this file, of grant.lua, lock.lua and queue.lua these are constants.
local lock, counter, queue, handoff = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local form, token_ttl = ARGV[1], ARGV[2]
local record = form ~= 'hash' and KEYS[5]
