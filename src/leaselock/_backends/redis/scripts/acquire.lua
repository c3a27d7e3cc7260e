-- Take a lock, confirm a grant that was handed over, or enter the queue: as its only holder, as a
-- reader, for an update, or for some permits.
-- Repeated, it replies the same: a holder gets its token, a waiter keeps its position.
--
-- KEYS   1 to 5 as in keys.lua   6 tombstone of this claim   7 index of active names
-- ARGV   1 to 7 as in keys.lua   8 owner   9 lease in ms   10 member: the claim as the queue has it
--        11 1 if its mode is exclusive, else 0
--        12 wait: 1 to queue, else 0   13 ticket of an earlier position in the queue, or ''
--        14 for how many ms the lock stays taken after the grant, whatever becomes of its hold;
--        none unless it does   15 1 to end that with a multiple of these on the clock, else 0
-- Reply  {1, token}  granted; with the numbers of its permits at the end, if they are numbered
--        {0, ms left of the lease, rank in the queue or -1, ticket, owner, record, holds}  refused
--        {-1}  the claim was given up for good
--        {-2, permits}  the lock is in use as a semaphore; as a lock, if that is -1
--        NOTALOCK and the type, if the key is not a lock
-- As in each script, an error that is returned says that this claim got nothing; others may have been
-- granted. One that a command raises may leave a part of the work behind.
--
-- In this order, each step replies if it can: 1 a tombstone  2 nothing exists: grant  3 one exclusive
-- hold and no waiter: refuse  4 only exclusive holds and waiters: confirm, or queue  5 all else: remove
-- the holds that have ended, confirm, promote, compare the limit, grant, refuse.

-- include keys.lua

local index, owner, lease, member = KEYS[7], ARGV[8], ARGV[9], ARGV[10]

-- A key that is named four times counts four times. The hand-off counts because a recall has emptied
-- the queue.
local gone = KEYS[6]
local existing = redis.call('EXISTS', lock, queue, handoff, gone, gone, gone, gone)
if existing >= 4 then return {-1} end
-- It only takes the lock, and does not keep it taken.
local plain = ARGV[11] == '1' and not ARGV[14]
if existing == 0 and plain then
  -- include grant.lua
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local token, _, wrong = draw(member, now)
  if wrong then return wrong end
  -- That it is listed is not worth the failure of a grant.
  redis.pcall('ZADD', index, string.format('%.0f', now), lock)
  return write_only(owner, token, member, lease, now) or {1, token}
end

-- include lock.lua

-- An exclusive claim is not granted beside others, and a refusal names one of them.
local known, holds = nil, nil
if existing > 0 and ARGV[11] == '1' then known, holds = read() end
if plain and ARGV[12] == '0' and holds and #holds == 1 and holds[1].owner ~= owner
  and not known.foreign and mode_of(known, holds[1]) == 'exclusive' then
  -- The most frequent refusal, without what only others need.
  return {0, redis.call('PTTL', lock), -1, ARGV[13], holds[1].owner, holds[1].about, 1}
end

-- include state.lua

local waits, ticket = ARGV[12] == '1', ARGV[13]

local function add_to_index(micros) redis.pcall('ZADD', index, micros, lock) end

-- The reply to a claim that is refused, and enters the queue or keeps its position there. The hold that
-- it waits for may be of a program that writes no index.
local function busy(left, hold, count)
  if not waits then return {0, left, -1, ticket, hold.owner, hold.about, count} end
  local last = redis.pcall('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
  if last.err then return last end
  if ticket == '' then ticket = state.text(math.max((last[2] or 0) + 1, state.clock())) end
  if redis.call('ZADD', queue, 'NX', ticket, member) == 0 then
    ticket = redis.call('ZSCORE', queue, member)
  else
    add_to_index(ticket)
  end
  redis.call('PEXPIRE', queue, 60000)
  local rank = redis.call('ZRANK', queue, member)
  return {0, left, rank, ticket, hold.owner, hold.about, count}
end

local function held_by_one()
  return busy(redis.call('PTTL', lock), state.all_holds()[1], 1)
end

-- A claim that holds gets the same again, for at least its lease: the token, if its record has one.
local function confirmed_alone()
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
    if record then redis.call('PEXPIRE', record, lease) end
  end
  redis.call('DEL', handoff)
  return string.match(state.own.about, '^%d+')
end

if existing > 0 then
  state.holds = holds
  local wrong = state.load(owner, ARGV[11] == '0', known)
  if wrong then return wrong end
  if state.mode == 'exclusive' and plain then
    if not state.own then return held_by_one() end
    local token = confirmed_alone()
    if token then return {1, token} end
  end
end

-- include grant.lua

-- include queue.lua

state.several()
local claim = state.claim_of(member)

-- The lock, and each permit, stays taken until a time. Repeated, it keeps the first time.
local function free_from(ms)
  local now = state.now_ms()
  -- A millisecond more: the granularity of the time to live.
  return now, now + ms + 1 - (ARGV[15] == '1' and now % ms or 0)
end

local function keep_taken(ms)
  local now, ends = free_from(ms)
  ends = tonumber(redis.call('HGET', lock, 'free_from')) or ends
  redis.call('HSET', lock, 'free_from', state.text(ends))
  if redis.call('PTTL', lock) < ends - now then
    redis.call('PEXPIRE', lock, state.text(ends - now))
  end
end

-- Keep the permits taken, which have an end of their own.
local function keep_permits(ms)
  local about = redis.call('HGET', lock, 'about:' .. owner) or ''
  local numbers, noted, before, after = state.marks_in(about)
  if before and not noted then
    local _, ends = free_from(ms)
    noted = string.format('%.3f', ends / 1000)
    redis.call('HSET', lock, 'about:' .. owner, state.with_marks(numbers, noted, before, after))
    if tonumber(string.match(redis.call('HGET', lock, owner), '^%d+')) < ends then
      redis.call('HSET', lock, owner, state.text(ends))
      state.keep(ends, false)
    end
  end
end

local function grant_of(token, slots)
  local ms = tonumber(ARGV[14])
  if ms and state.mode == 'exclusive' then
    keep_taken(ms)
  elseif ms then
    keep_permits(ms)
  end
  return {1, token, slots}
end

-- The same beside others; nil if it is to be granted anew.
local function confirmed()
  if state.mode == 'exclusive' then
    local token = confirmed_alone()
    return (token or claim.kind ~= 'exclusive') and grant_of(token or '0')
  end
  local token, hold = state.in_record(state.own.about)
  if not (state.own.ends and hold) then return unreadable('a hold of ' .. owner) end
  local ends = math.max(state.now_ms() + claim.lease, state.own.ends)
  redis.call('HSET', lock, owner, state.text(ends))
  state.keep(ends, false)
  if hold.kind ~= 'permits' then return grant_of(token) end
  -- An earlier version of this library may have granted it.
  local about, slots = state.numbered(state.own.about, hold.permits)
  if about ~= state.own.about then redis.call('HSET', lock, 'about:' .. owner, about) end
  return grant_of(token, slots)
end

-- A semaphore is no lock, and has one number of permits; returns the reply to a claim that disagrees.
local function mismatch()
  local semaphore = nil
  if existing > 0 then semaphore = state.is_semaphore() end
  if semaphore then state.load_limit() end
  if semaphore ~= nil and semaphore ~= (claim.kind == 'permits') then
    redis.call('ZREM', queue, member)
    return {-2, semaphore and state.limit or -1}
  elseif claim.kind == 'permits' then
    -- A claim with a ticket was queued before, perhaps before the limit was changed.
    if semaphore == nil and (ticket == '' or state.limit == 0) then
      state.limit = claim.limit > 0 and claim.limit or state.limit
      state.remember_limit()
    end
    local agrees = claim.limit == 0 or claim.limit == state.limit
    agrees = agrees or ticket ~= '' or redis.call('ZSCORE', queue, member)
    if not agrees or claim.permits > state.limit then
      redis.call('ZREM', queue, member)
      return {-2, state.limit}
    end
  end
end

local function refused(ahead)
  if state.mode == 'exclusive' then return held_by_one() end
  local left, oldest, least = state.recheck, {owner = '', about = ''}, nil
  if ahead.left_to_others then
    left = redis.call('PTTL', handoff)
  elseif state.fits(claim, {}) then
    -- Only claims are in its way. Each must ask from time to time: a process may be stopped.
    local since = tonumber(string.match(state.read_handoff(), '^kept out\n(%d+)'))
    if since and state.now_ms() - since > 5 * state.recheck then
      state.recall(member)
      left = 100
    elseif state.last_handoff == '' then
      redis.call('SET', handoff, 'kept out\n' .. state.text(state.now_ms()), 'PX', 60000)
    end
  end
  for _, hold in ipairs(state.all_holds()) do
    local token = tonumber((state.in_record(hold.about)))
    if not hold.ends then return unreadable('a hold of ' .. hold.owner) end
    if not least or token < least then oldest, least = hold, token end
    left = math.min(left, hold.ends - state.now_ms())
  end
  return busy(left, oldest, math.max(1, #state.holds))
end

local wrong = state.remove_ended()
if not wrong and claim.kind == 'permits' then wrong = state.load_limit() end
if wrong then return wrong end
local again = state.own and confirmed()
if again then return again end

local ahead = {}
-- Beside the lock itself, its queue or its hand-off exists.
local others_come_first = existing > (state.mode and 1 or 0)
if not state.own and state.mode ~= 'exclusive' and others_come_first then
  local offered = not state.mode and string.match(state.read_handoff(), '^offered\n(.*)')
  local function client_of(who) return string.match(who, '^(.*):') end
  -- A hold that was released may never have been confirmed. Without waiters nothing is lost.
  if offered and client_of(offered) ~= client_of(owner) and redis.call('EXISTS', queue) == 1 then
    state.recall(member)
  end
  ahead = state.promote(owner, false)
  if ahead.wrong then return ahead.wrong end
  if state.mine then return grant_of(state.mine.token, state.mine.slots) end
end
local no = mismatch()
if no then return no end
if state.own or not ahead.left_to_others and state.fits(claim, ahead) then
  local token, _, wrong = draw(member, state.clock())
  if wrong then return wrong end
  if not state.mode then add_to_index(state.text(state.clock())) end
  return state.write(claim, token, claim.lease, false) or grant_of(token, claim.slots)
end
return refused(ahead)
