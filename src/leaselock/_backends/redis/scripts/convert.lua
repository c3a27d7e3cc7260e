-- Change the mode of a hold: to a weaker one at once, from update to exclusive when it is the only
-- one. The conversions of a hold are counted: one with a smaller number than the last does nothing,
-- and one with the same number replies what there is.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 limit
-- ARGV   1 owner   2 address   3 number of the conversion   4 mode: exclusive, update or shared
--        5 format: hash   6 for how many ms the token is kept, or 0 for ever
--        7 longest lease in ms of a grant that is handed over
--        8 after how many ms a waiter asks again by itself
--        9 PUBLISH or SPUBLISH   10 beginning of the waiters' channels   11 Redisson's channel
-- Reply  {0}  the owner does not hold the lock
--        {1, ms until to ask again, owner, record}
local lock, counter, queue, handoff, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, address, step, target = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local form, token_ttl, confirm_within, recheck = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local verb, channels, freed = ARGV[9], ARGV[10], ARGV[11]
local record = nil

-- include lock.lua

-- include hand_over.lua

-- include enqueue.lua

-- include holds.lua

local STRENGTH = {shared = 0, update = 1, upgrading = 1, exclusive = 2}
local wrong = load()
if wrong then return wrong end
wrong = collect()
if wrong then return wrong end
local ends = mode and redis.call('HGET', lock, owner)
if not ends then
  promote_waiters(false)
  return {0}
end
local about, unconverted = redis.call('HGET', lock, 'about:' .. owner) or '', nil
local _, hold = in_record(about)
if not hold then return redis.error_reply('UNREADABLE lock a hold of ' .. owner) end
if step > (step_of(about) or 0) then
  local before = hold.kind
  if target == 'exclusive' and (before == 'update' or before == 'upgrading') then
    unconverted = about
    upgrading = owner .. '\n' .. address
    about = converted(about, 'upgrading', step)
    redis.call('HSET', lock, 'upgrading', upgrading, 'about:' .. owner, about)
  elseif STRENGTH[target] and STRENGTH[target] <= (STRENGTH[before] or -1) then
    about = converted(about, target, step)
    redis.call('HSET', lock, 'about:' .. owner, about)
    if before == 'exclusive' and target ~= before then
      mode, used, next_end = 'shared', 1, now_ms + redis.call('PTTL', lock)
      redis.call('HDEL', lock, 'free_from')
      redis.call('HSET', lock, 'mode', mode, 'used', used, owner, text(next_end), 'next_end', text(next_end))
      if target == 'update' then
        update = owner
        redis.call('HSET', lock, 'update', owner)
      end
    elseif before ~= target and before ~= 'shared' then
      redis.call('HDEL', lock, 'upgrading')
      if target == 'shared' then redis.call('HDEL', lock, 'update') end
      upgrading, update = false, target ~= 'shared' and update
    end
  end
elseif upgrading and step == step_of(about) and string.sub(upgrading, 1, #owner + 1) == owner .. '\n' then
  -- It may listen to another channel by now.
  upgrading = owner .. '\n' .. address
  redis.call('HSET', lock, 'upgrading', upgrading)
end
local failed = promote(owner, false).wrong
if failed then
  if unconverted then
    redis.call('HDEL', lock, 'upgrading')
    redis.call('HSET', lock, 'about:' .. owner, unconverted)
  end
  return failed
end
about = redis.call('HGET', lock, 'about:' .. owner) or ''
local recheck_ms = recheck
if upgrading then
  for _, other in ipairs(holds_in(redis.call('HGETALL', lock))) do
    if other.owner ~= owner and other.ends then
      recheck_ms = math.min(recheck_ms, other.ends - now_ms)
    end
  end
end
return {1, recheck_ms, owner, about}
