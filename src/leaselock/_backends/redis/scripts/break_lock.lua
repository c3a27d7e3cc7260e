-- End the hold with that owner, and grant the lock to the next waiter. Repeated, it does nothing.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 limit; unless the format is hash, holder record
-- ARGV   1 owner   2 format: hash, string or vote   3 for how many ms the token is kept, or 0
--        4 longest lease in ms of a grant that is handed over
--        5 after how many ms a waiter asks again by itself
--        6 PUBLISH or SPUBLISH   7 beginning of the waiters' channels   8 Redisson's channel
-- Reply  {1, owner, record}  the hold was ended
--        {0, owner, record}  it is held by another owner; '' when it is free
--        NOTALOCK and the type, if the key is not a lock
local lock, counter, queue, handoff = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local form, token_ttl, confirm_within, recheck = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local verb, channels, freed = ARGV[6], ARGV[7], ARGV[8]
local record = form ~= 'hash' and KEYS[5]

-- include lock.lua

-- include hand_over.lua

-- include enqueue.lua

local function break_among_holds(owner, about)
  local limits = KEYS[5]
  -- include holds.lua
  local wrong = load()
  if wrong then return wrong end
  if about then
    local _, claim = in_record(about)
    if not claim then return redis.error_reply('UNREADABLE lock a hold of ' .. owner) end
    remove(owner, claim.permits)
  end
  promote_waiters(false)
end

local owner, about, kind, fields = read()
if owner == nil then return not_a_lock() end
if kind == 'shared' or kind == 'permits' then
  for _, hold in ipairs(holds_in(fields)) do
    if hold.owner == ARGV[1] then
      return break_among_holds(hold.owner, hold.about) or {1, hold.owner, hold.about}
    end
  end
end
if owner ~= ARGV[1] then return {0, owner or '', about} end
if about then revoke(about) end
redis.call('DEL', lock)
if record then redis.call('DEL', record) end
local done = hand_over('')
if done == nil then
  break_among_holds()
  return {1, owner, about}
end
if not done or type(done) == 'table' then tell(freed, '0') end
return {1, owner, about}
