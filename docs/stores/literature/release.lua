-- Give back one level of a lock that acquire.lua, beside this file, has taken.
--
--     redis-cli --eval release.lua lock:user:123456 , thread-x
--
-- KEYS   1 the lock
-- ARGV   1 owner, as it acquired
--        2 seconds until the lock expires if levels are left; without it the time stays as it is
-- Reply  1 one level less; with the last one the key is gone    nil the owner does not have it
--
-- What it can lose: repeated after a reply that was lost, it gives back two levels.
local lock, owner, seconds = KEYS[1], ARGV[1], ARGV[2]

if redis.call('HEXISTS', lock, owner) == 0 then
  return nil
end
if redis.call('HINCRBY', lock, owner, -1) <= 0 then
  redis.call('DEL', lock)
elseif seconds then
  redis.call('EXPIRE', lock, seconds)
end
return 1
