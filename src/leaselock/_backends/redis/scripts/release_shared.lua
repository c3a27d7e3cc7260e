-- Release a claim of another mode than exclusive, whether it holds or waits, and grant what can be
-- granted then. Repeated, it does nothing.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 tombstone of this claim   6 limit
-- ARGV   as release.lua
-- Reply  as release.lua
local lock, counter, queue, handoff, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local owner, member, only, form, token_ttl = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local confirm_within, recheck = tonumber(ARGV[7]), tonumber(ARGV[8])
local verb, channels, freed = ARGV[9], ARGV[10], ARGV[11]
local record = nil

-- include lock.lua

-- include hand_over.lua

-- include enqueue.lua

-- include holds.lua

local wrong, was = load(), 0
if wrong then return wrong end
local about = mode and redis.call('HGET', lock, 'about:' .. owner)
if about then
  local token, claim = in_record(about)
  if not claim then return redis.error_reply('UNREADABLE lock a hold of ' .. owner) end
  if only == '' or only == token then
    remove(owner, claim.permits)
    was = 1
  end
end
if was == 0 and member ~= '' and redis.call('ZREM', queue, member) == 1 then was = 2 end
if ARGV[3] ~= '0' then redis.call('SET', KEYS[5], '', 'PX', ARGV[3]) end
if was > 0 then promote_waiters(was == 1) end
return was
