-- Remove the locks from the index that are neither held nor waited for.
--
-- KEYS   1 index   then for each lock: lock, queue, hand-off
-- Reply  how many were removed
local idle, used = {}, {}
for i = 2, #KEYS, 3 do
  if redis.call('EXISTS', KEYS[i], KEYS[i + 1], KEYS[i + 2]) == 0 then
    idle[#idle + 1] = KEYS[i]
  else
    used[#used + 1] = KEYS[i]
  end
end
if #used > 0 then
  -- The next one who looks for the oldest finds others.
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  for _, lock in ipairs(used) do redis.call('ZADD', KEYS[1], now, lock) end
end
return #idle > 0 and redis.call('ZREM', KEYS[1], unpack(idle)) or 0
