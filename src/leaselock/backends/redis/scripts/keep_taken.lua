-- Keep a lock taken until a time, whatever becomes of its hold. Repeated, it keeps the first time.
--
-- KEYS   1 lock
-- ARGV   1 owner   2 for how many ms   3 1 to end with a multiple of these on the clock, else 0
-- Reply  1 the owner holds it    0 it does not
local lock, owner, ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', lock, owner) == 0 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local free_from = tonumber(redis.call('HGET', lock, 'free_from'))
if not free_from then
  -- A millisecond more: the granularity of the time to live.
  free_from = now + ms + 1 - (ARGV[3] == '1' and now % ms or 0)
  redis.call('HSET', lock, 'free_from', string.format('%.0f', free_from))
end
if redis.call('PTTL', lock) < free_from - now then
  redis.call('PEXPIRE', lock, string.format('%.0f', free_from - now))
end
return 1
