-- Change the mode of a hold: to a weaker one at once, from update to exclusive when it is the only
-- one. The conversions of a hold are counted: one with a smaller number than the last does nothing,
-- and one with the same number replies what there is.
--
-- KEYS   1 to 5 as in keys.lua
-- ARGV   1 to 7 as in keys.lua   8 owner   9 address   10 number of the conversion
--        11 mode: exclusive, update or shared
-- Of the hash are written, beside the record of the hold:
--   exclusive → shared, update    mode, used, next_end, the end of the hold; update; free_from goes
--   update → exclusive            upgrading, until it is complete (queue.lua)
--   upgrading → update, shared    upgrading goes; with shared update, too
--   update → shared               update goes
-- Reply  {0}  the owner does not hold the lock
--        {1, ms until to ask again, owner, record}

-- include all.lua

local owner, address, step, target = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11]
local STRENGTH = {shared = 0, update = 1, upgrading = 1, exclusive = 2}
local wrong = state.load(owner, true) or state.remove_ended()
if wrong then return wrong end
if not state.own then
  state.promote_waiters(false)
  return {0}
end
local about, unconverted = state.own.about, nil
local _, hold = state.in_record(about)
if not hold then return unreadable('a hold of ' .. owner) end
if step > (state.step_of(about) or 0) then
  local before = hold.kind
  if target == 'exclusive' and (before == 'update' or before == 'upgrading') then
    unconverted = about
    state.upgrading = owner .. '\n' .. address
    about = state.converted(about, 'upgrading', step)
    redis.call('HSET', lock, 'upgrading', state.upgrading, 'about:' .. owner, about)
  elseif STRENGTH[target] and STRENGTH[target] <= (STRENGTH[before] or -1) then
    about = state.converted(about, target, step)
    redis.call('HSET', lock, 'about:' .. owner, about)
    if before == 'exclusive' and target ~= before then
      state.mode, state.used, state.next_end = 'shared', 1, state.now_ms() + redis.call('PTTL', lock)
      redis.call('HDEL', lock, 'free_from')
      redis.call('HSET', lock, 'mode', state.mode, 'used', state.used, owner, state.text(state.next_end), 'next_end', state.text(state.next_end))
      if target == 'update' then
        state.update = owner
        redis.call('HSET', lock, 'update', owner)
      end
    elseif before ~= target and before ~= 'shared' then
      redis.call('HDEL', lock, 'upgrading')
      if target == 'shared' then redis.call('HDEL', lock, 'update') end
      state.upgrading, state.update = false, target ~= 'shared' and state.update
    end
  end
elseif state.upgrading and step == state.step_of(about) and string.sub(state.upgrading, 1, #owner + 1) == owner .. '\n' then
  -- It may listen to another channel by now.
  state.upgrading = owner .. '\n' .. address
  redis.call('HSET', lock, 'upgrading', state.upgrading)
end
local failed = state.promote(owner, false).wrong
if failed then
  -- Only an upgrade is undone: a client counts on the weaker mode from the moment it asks for it.
  if unconverted then
    redis.call('HDEL', lock, 'upgrading')
    redis.call('HSET', lock, 'about:' .. owner, unconverted)
  end
  return failed
end
about = redis.call('HGET', lock, 'about:' .. owner) or ''
local recheck_ms = state.recheck
if state.upgrading then
  for _, other in ipairs(state.all_holds()) do
    if other.owner ~= owner and other.ends then
      recheck_ms = math.min(recheck_ms, other.ends - state.now_ms())
    end
  end
end
return {1, recheck_ms, owner, about}
