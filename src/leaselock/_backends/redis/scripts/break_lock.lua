-- End the hold with that owner, and grant the lock to the next waiter. Repeated, it does nothing.
--
-- KEYS   1 to 5 as in keys.lua
-- ARGV   1 to 7 as in keys.lua   8 owner
-- Reply  {1, owner, record}  the hold was ended
--        {0, owner, record}  it is held by another owner; '' when it is free
--        NOTALOCK and the type, if the key is not a lock

-- include all.lua

local wrong = state.load(ARGV[8])
if wrong then return wrong end
if not state.own then
  local first = state.holds[1] or {owner = '', about = ''}
  return {0, first.owner, first.about}
end
local _, claim = state.in_record(state.own.about)
if state.mode == 'exclusive' then
  redis.call('DEL', lock)
  if record then redis.call('DEL', record) end
  state.mode = false
elseif claim then
  state.remove(state.own.owner, claim.permits)
else
  return unreadable('a hold of ' .. state.own.owner)
end
state.promote_waiters(false)
return {1, state.own.owner, state.own.about}
