-- Change the number of permits of a semaphore. Waiters for more ask again, and are refused.
--
-- KEYS   1 to 5 as in keys.lua
-- ARGV   1 to 7 as in keys.lua   8 permits
-- Reply  the number of permits; -1 if the name is in use as a lock

-- include all.lua

local wrong = state.load('', true) or state.load_limit() or state.remove_ended()
if wrong then return wrong end
local semaphore = state.is_semaphore() ~= false
if semaphore then
  -- Before anything is granted: a claim that fits only the number so far stays where it is.
  state.limit = tonumber(ARGV[8])
  state.remember_limit()
  if state.mode then redis.call('HSET', lock, 'limit', state.limit) end
  for _, member in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local claim = state.claim_of(member)
    if claim and claim.permits > state.limit then
      redis.call('ZREM', queue, member)
      state.wake(member)
    end
  end
end
state.promote_waiters(false)
return semaphore and state.limit or -1
