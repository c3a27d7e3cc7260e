-- Delete or extend a lock of the format setnx-expire, if it still has this owner.
-- Repeated, a deletion does nothing, and an extension replies the same.
--
-- KEYS   1 lock   2 holder record
-- ARGV   1 owner   2 for how many seconds the lock is to last at least; without it, it is deleted
-- Reply  the seconds that it lasts then; 0 it was deleted   -1 it has another owner, or none
local lock, owner, seconds = KEYS[1], ARGV[1], ARGV[2]

local found = redis.pcall('GET', lock)
if type(found) == 'table' then return found end
if found ~= owner then return -1 end
if not seconds then
  redis.call('DEL', lock, KEYS[2])
  return 0
end
local lasts = math.max(redis.call('TTL', lock), tonumber(seconds))
redis.call('EXPIRE', lock, lasts)
return lasts
