-- Take a lock, confirm a grant that was handed over, or enter the queue: as its only holder, as a
-- reader, for an update, or for some permits.
-- Repeated, it replies the same: a holder gets its token, a waiter keeps its position.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 tombstone of this claim
--        6 index of active names   7 limit, for a claim of another mode than exclusive; holder record,
--        unless the format is hash
-- ARGV   1 owner   2 lease in ms   3 member: the claim as the queue has it
--        4 how many tokens a grant reserves   5 format: hash, string or vote
--        6 for how many ms the token is kept, or 0 for ever
--        7 wait: 1 to queue, else 0   8 ticket of an earlier position in the queue, or ''
--        9 longest lease in ms of a grant that is handed over
--        10 after how many ms a waiter asks again by itself
--        11 PUBLISH or SPUBLISH   12 beginning of the waiters' channels   13 Redisson's channel
--        14 for how many ms the lock stays taken after the grant, whatever becomes of its hold;
--        none unless it does   15 1 to end that with a multiple of these on the clock, else 0
-- Reply  {1, token}  granted; with the numbers of its permits at the end, if they are numbered
--        {0, ms left of the lease, rank in the queue or -1, ticket, owner, record}  busy; with how
--        many holds at the end, if that is not 1
--        {-1}  the claim was given up for good
--        {-2, permits}  the lock is in use as a semaphore; as a lock, if that is -1
--        NOTALOCK and the type, if the key is not a lock
-- As in each script, an error is returned before anything has changed. One that a command raises may
-- leave a part of the work behind.
local lock, counter, queue, handoff, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local owner, lease, member, tokens = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local form, token_ttl = ARGV[5], ARGV[6]
-- Named for claims of other modes only.
local limits = form == 'hash' and KEYS[7] or nil
local record = not limits and KEYS[7]

local function granted(token)
  local ms, aligned = tonumber(ARGV[14]), ARGV[15]
  if ms then
    -- include keep_taken.lua
  end
  return {1, token}
end

-- A key that is named four times counts four times: with the tombstone, the number is at least 4.
-- The hand-off counts because a recall has emptied the queue.
local existing = limits and 0
  or redis.call('EXISTS', lock, queue, handoff, KEYS[5], KEYS[5], KEYS[5], KEYS[5])
if limits or existing > 0 then
  local confirm_within, recheck = tonumber(ARGV[9]), tonumber(ARGV[10])
  local verb, channels, freed = ARGV[11], ARGV[12], ARGV[13]

  -- include lock.lua

  -- include hand_over.lua

  -- include enqueue.lua

  -- In another mode than exclusive, or beside, or behind, claims of other modes.
  local function acquire_among_holds()
    -- include holds.lua
    local reply = acquire(claim_of(member), ARGV[7] == '1', ARGV[8])
    if reply[1] ~= 1 then return reply end
    if not limits then return granted(reply[2]) end
    if ARGV[14] then keep_permits(owner, tonumber(ARGV[14]), ARGV[15] == '1') end
    return reply
  end
  if limits then return acquire_among_holds() end

  local held_by, about, kind = read()
  if held_by == nil then return not_a_lock() end
  if kind and kind ~= 'exclusive' then return acquire_among_holds() end
  local held, remaining_ms, token = held_by, nil, nil
  if held_by == owner then
    remaining_ms, token = redis.call('PTTL', lock), string.match(about, '^%d+')
    if remaining_ms < tonumber(lease) then
      redis.call('PEXPIRE', lock, lease)
      if record then redis.call('PEXPIRE', record, lease) end
    end
    redis.call('DEL', handoff)
    if token then return granted(token) end
  elseif held_by then
    remaining_ms = redis.call('PTTL', lock)
  elseif existing >= 4 then
    return {-1}
  else
    local state = handoff_state()
    local offered = string.match(state, '^offered\n(.*)')
    -- A hold that was released may never have been confirmed. Without waiters nothing is lost.
    if offered and client_of(offered) ~= client_of(owner) and redis.call('EXISTS', queue) == 1 then
      recall(member)
      state = 'left'
    end
    if state == 'left' then
      remaining_ms = redis.call('PTTL', handoff)
    else
      local next_one = hand_over(owner)
      if next_one == nil then return acquire_among_holds() end
      if type(next_one) == 'table' then return next_one end
      if next_one and next_one ~= owner then
        held_by, about = read()
        remaining_ms = redis.call('PTTL', lock)
      end
    end
    if not remaining_ms then redis.call('ZREM', queue, member) end
  end
  if remaining_ms and held_by ~= owner then
    local rank, ticket = -1, ARGV[8]
    if ARGV[7] == '1' then
      local last = redis.pcall('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
      if last.err then return last end
      if existing >= 4 then return {-1} end
      rank, ticket = enqueue(member, ticket, last)
    end
    revoke(about)
    return {0, remaining_ms, rank, ticket, held_by or '', about}
  end
end

-- include draw.lua
if wrong then return wrong end
-- include add_to_index.lua
-- include hold.lua
return granted(token)
