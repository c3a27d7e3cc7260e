-- Give a claim of any mode up, whether it holds or waits, and grant what can be granted then.
-- Repeated, it does nothing.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 tombstone of this claim
--        6 limit, for a claim of another mode than exclusive; holder record, unless the format is hash
-- ARGV   1 owner   2 member: the claim as the queue has it, or '' if it is not there
--        3 for how long in ms to refuse this claim from now on, or 0
--        4 the token of the only grant that is meant, or '' for any
--        5 format: hash, string or vote   6 for how many ms the token is kept, or 0 for ever
--        7 longest lease in ms of a grant that is handed over
--        8 after how many ms a waiter asks again by itself
--        9 PUBLISH or SPUBLISH   10 beginning of the waiters' channels   11 Redisson's channel
-- Reply  1  it held    2  it waited    0  it was not there
local lock, counter, queue, handoff = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, member, only, form = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local verb, channels, freed = ARGV[9], ARGV[10], ARGV[11]
-- Named for claims of other modes only.
local limits = form == 'hash' and KEYS[6] or nil
local record = not limits and KEYS[6]

-- Leave the queue if the claim did not hold, and refuse it from now on; 1, 2 or 0 as in the reply.
local function leave(was)
  if was == 0 and member ~= '' and redis.call('ZREM', queue, member) == 1 then was = 2 end
  if ARGV[3] ~= '0' then redis.call('SET', KEYS[5], '', 'PX', ARGV[3]) end
  return was
end

local heads, was = nil, 0
if not limits then
  heads = redis.pcall('ZRANGE', queue, 0, 1)
  if heads.err then return heads end
  -- Before anything else: a server without free memory still allows commands that free some.
  if form ~= 'hash' then
    local found = redis.pcall('GET', lock)
    if type(found) == 'table' then return found end
    if found == owner
      and (only == '' or string.match(redis.call('GET', record) or '', '^%d+') == only) then
      was = redis.call('DEL', lock, record) > 0 and 1 or 0
    end
  elseif only == ''
    or string.match(redis.call('HGET', lock, 'about:' .. owner) or '', '^%d+') == only then
    local gone = redis.pcall('HDEL', lock, owner, 'about:' .. owner)
    if type(gone) == 'table' then return gone end
    if gone > 0 then
      redis.call('HDEL', lock, 'mode', 'free_from')
      was = 1
    end
  end
  was = leave(was)
  if was == 0 then return was end
end

if limits or heads[1] then
  local token_ttl, confirm_within, recheck = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])

  -- include hand_over.lua

  -- A claim of another mode, or an exclusive one that was released before claims of other modes.
  local function release_among_holds()
    -- include lock.lua
    -- include enqueue.lua
    -- include holds.lua
    local wrong = load()
    if limits then
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
      was = leave(was)
    end
    if was > 0 then promote_waiters(was == 1) end
    return was
  end
  if limits then return release_among_holds() end

  if was == 2 then
    local mode = form == 'hash' and redis.call('HGET', lock, 'mode')
    if mode == 'shared' then return release_among_holds() end
    -- The next one may not know that the lock is free.
    local next_one = redis.call('EXISTS', lock) == 0 and redis.call('ZRANGE', queue, 0, 0)[1]
    if next_one then wake(next_one) end
    return was
  end
  local done = hand_over('', heads, true)
  if done == nil then return release_among_holds() end
  if done and type(done) ~= 'table' then return was end
end
-- Only clients of Redisson listen, and a user may lack the right to publish.
if form == 'hash' and was == 1 then redis.pcall(verb, freed, '0') end
return was
