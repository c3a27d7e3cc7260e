-- Give a claim of any mode up, whether it holds or waits, and grant what can be granted then.
-- Repeated, it does nothing.
--
-- KEYS   1 to 5 as in keys.lua   6 tombstone of this claim
-- ARGV   1 to 7 as in keys.lua   8 owner
--        9 member: the claim as the queue has it, or '' if it is not there
--        10 for how long in ms to refuse this claim from now on, or 0
--        11 the token of the only grant that is meant, or '' for any
-- Reply  1  it held    2  it waited    0  it was not there

-- include keys.lua

local owner, member, only, was = ARGV[8], ARGV[9], ARGV[11], 0
local heads = redis.pcall('ZRANGE', queue, 0, 1)
if heads.err then return heads end
local found, about, alone = nil, nil, nil
if form == 'hash' then
  found = redis.pcall('HMGET', lock, 'mode', owner, 'about:' .. owner)
  if found.err then return found end
  alone, about = found[2] and (found[1] or 'exclusive') == 'exclusive', found[3]
else
  found = redis.pcall('GET', lock)
  if type(found) == 'table' then return found end
  alone, about = found == owner, only ~= '' and redis.call('GET', record)
end
if alone and (only == '' or string.match(about or '', '^%d+') == only) then
  -- A server without free memory still allows commands that free some: so this is the first one that
  -- changes anything.
  if form == 'hash' then
    redis.call('HDEL', lock, owner, 'about:' .. owner, 'mode', 'free_from')
  else
    redis.call('DEL', lock, record)
  end
  was = 1
  if not heads[1] then
    if ARGV[10] ~= '0' then redis.call('SET', KEYS[6], '', 'PX', ARGV[10]) end
    -- Only clients of Redisson listen, and a user may lack the right to publish.
    if form == 'hash' then redis.pcall(ARGV[5], ARGV[7], '0') end
    return was
  end
end

-- include grant.lua

-- include lock.lua

-- include state.lua

-- include queue.lua

if was == 1 then
  -- The lock was read and ended above: `state` keeps its defaults, which are those of a free lock. What
  -- came before this hold does not matter after it.
  state.last_handoff = 'ended'
else
  local wrong = state.load(owner, true)
  if wrong then return wrong end
  state.several()
  local token, claim = nil, nil
  if state.own and state.mode ~= 'exclusive' then token, claim = state.in_record(state.own.about) end
  if token and (only == '' or token == only) then
    if not claim then return unreadable('a hold of ' .. owner) end
    state.remove(owner, claim.permits)
    was = 1
  elseif member ~= '' and redis.call('ZREM', queue, member) == 1 then
    was, heads = 2, nil
  end
end
if ARGV[10] ~= '0' then redis.call('SET', KEYS[6], '', 'PX', ARGV[10]) end
if was > 0 then state.promote_waiters(was == 1, heads) end
return was
