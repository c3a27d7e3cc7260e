-- Take a lock that counts, as the literature writes it: a hash {owner: depth} that expires.
-- leaselock does not use this script. It is here for fleets that do: to read, to copy, to try.
--
--     redis-cli --eval acquire.lua lock:user:123456 , thread-x 30
--
-- KEYS   1 the lock
-- ARGV   1 owner: thread, process and host in one text, unique in the fleet
--        2 seconds until the lock expires, counted anew by each acquire
-- Reply  1 the owner has it, one level deeper if it had it before    0 another owner has it
--
-- What it can lose:
-- * Repeated after a reply that was lost, it counts twice, and one release does not free the lock.
-- * An acquire with fewer seconds than are left shortens the time of the levels above it.
-- * A release notifies no waiter (waiters have to poll), and no grant carries a fencing token.
-- Redisson's RLock has the same key, but milliseconds and a message: the default protocol is that.
local lock, owner, seconds = KEYS[1], ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 1 and redis.call('HEXISTS', lock, owner) == 0 then
  return 0
end
redis.call('HINCRBY', lock, owner, 1)
redis.call('EXPIRE', lock, seconds)
return 1
