-- Keep the lock taken until a time, whatever becomes of its hold. Repeated, it keeps the first time.
-- Uses ms: for how long; and aligned: '1' to end with a multiple of that on the clock.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local free_from = tonumber(redis.call('HGET', lock, 'free_from'))
if not free_from then
  -- A millisecond more: the granularity of the time to live.
  free_from = now + ms + 1 - (aligned == '1' and now % ms or 0)
  redis.call('HSET', lock, 'free_from', string.format('%.0f', free_from))
end
if redis.call('PTTL', lock) < free_from - now then
  redis.call('PEXPIRE', lock, string.format('%.0f', free_from - now))
end
