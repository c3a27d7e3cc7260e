-- Take a lock, confirm a grant that was handed over, or stand in the queue.
-- Asked again it answers the same: a holder gets its token, a waiter keeps its place.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record    5 grave of this claim
-- ARGV   1 owner   2 lease in ms   3 member: the claim as it stands in the queue
--        4 wait: 1 to queue, else 0   5 ticket of an earlier place in the queue, or ''
--        6 longest lease in ms of a grant that is handed over
--        7 PUBLISH or SPUBLISH   8 beginning of the waiters' channels
--        9 how soon in ms a waiter looks again by itself
--        10 hash or string: what the lock is kept as; hash if it is missing
--        11 how many tokens a grant reserves
-- Reply  {1, token}  granted
--        {0, ms left of the lease, rank in the queue or -1, ticket, owner, record, token}  busy
--        {-1}  the claim was given up for good
local lock, counter, queue, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, member = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local claim_time, verb, channels, look_again = tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])
local form, reserved = ARGV[10], tonumber(ARGV[11] or 1)

-- [shared: grant, hand over]
-- Who holds: the field of a hash, which Redisson shares, or the string that redis-py's lock is. A
-- "vote" is such a string, too: one of several servers' part of a Redlock.
local plain = form == 'string' or form == 'vote'

local function holder()
  if plain then return redis.call('GET', lock) end
  return redis.call('HKEYS', lock)[1]
end

local function holds(owner)
  if plain then return redis.call('GET', lock) == owner end
  return redis.call('HEXISTS', lock, owner) == 1
end

-- The token is the counter plus one, or the server's clock in microseconds, whichever is more:
-- so it does not fall back when the counter is lost with the server's data. Votes only count, so
-- that servers agree. A grant that reserves several tokens sets the counter to the last of them.
local function draw()
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  local least = form == 'vote' and 0 or micros
  local token = math.max(tonumber(redis.call('GET', counter) or 0) + 1, least)
  return string.format('%.0f', token), string.format('%.0f', micros)
end

local function grant(who, what, ms, tokens, token, micros)
  if not token then token, micros = draw() end
  redis.call('SET', counter, tokens > 1 and string.format('%.0f', token + tokens - 1) or token)
  redis.call('SET', record, token .. '\nboth\n' .. micros .. '\n' .. what, 'PX', ms)
  if plain then
    redis.call('SET', lock, who, 'PX', ms)
  else
    -- Once before there is anything to expire: who may not do that must not make a lock without end.
    redis.call('PEXPIRE', lock, ms)
    redis.call('HSET', lock, who, 1)
    redis.call('PEXPIRE', lock, ms)
  end
  return token
end

-- How many hear it: none where the user may not publish, which must not end a script half-way.
local function tell(channel, word)
  local heard = redis.pcall(verb, channel, word)
  return type(heard) == 'number' and heard or 0
end

-- A free lock goes to the first waiter whose channel somebody listens to, for a short time: it
-- must confirm. Returns its owner; false when nobody waits. *me* needs no message, nor a grant.
local function hand_over(me)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then return false end
    redis.call('ZREM', queue, first)
    local who, address, ms, tokens = string.match(first, '^([^\n]*)\n([^\n]*)\n(%d+) ?(%d*)')
    if who == me then return me end
    ms = math.min(tonumber(ms), claim_time)
    local token, micros = draw()
    -- It is told what it has, so that it need not ask.
    local news = who .. '\n' .. token .. '\n' .. string.format('%.0f', ms)
    if tell(channels .. address, news) > 0 then
      grant(who, first, ms, tonumber(tokens) or 1, token, micros)
      -- Whoever is first in the queue now must look before such a short grant is over.
      local second = ms < look_again and redis.call('ZRANGE', queue, 0, 0)[1]
      if second then
        local other, place = string.match(second, '^([^\n]*)\n([^\n]*)\n')
        tell(channels .. place, other)
      end
      return who
    end
  end
end
-- [end of shared]

if redis.call('EXISTS', lock, queue, KEYS[5]) == 0 then
  return {1, grant(owner, member, lease, reserved)}
end
if redis.call('EXISTS', KEYS[5]) == 1 then return {-1} end
if holds(owner) then
  if redis.call('PTTL', lock) < lease then
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', record, lease)
  end
  if reserved == 1 then return {1, redis.call('GET', counter) or '0'} end
  local token = string.match(redis.call('GET', record) or '', '^%d+')
  return {1, token or grant(owner, member, math.max(lease, redis.call('PTTL', lock)), reserved)}
end
local left = redis.call('PTTL', lock)
if left == -2 and redis.call('GET', record) == 'left' then
  -- Left to Redisson for a moment (release.lua).
  left = redis.call('PTTL', record)
elseif left == -2 then
  local next_one = hand_over(owner)
  if not next_one or next_one == owner then
    redis.call('ZREM', queue, member)
    return {1, grant(owner, member, lease, reserved)}
  end
  left = redis.call('PTTL', lock)
end
local rank, ticket = -1, ''
if ARGV[4] == '1' then
  ticket = redis.call('ZSCORE', queue, member)
  if not ticket then
    ticket = ARGV[5]
    if ticket == '' then
      local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or 0
      local time = redis.call('TIME')
      ticket = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    end
    redis.call('ZADD', queue, ticket, member)
  end
  redis.call('PEXPIRE', queue, 60000)
  rank = redis.call('ZRANK', queue, member)
end
local held_by = holder() or ''
local about = redis.call('GET', record) or ''
-- A client that keeps the lock though it may not use it, is told that somebody asks.
local who, place = string.match(about, '^%d+\n%a+\n%d+\n([^\n]*)\n([^\n]*)\n%d+ %d+ sticky\n')
if who == held_by then tell(channels .. place, who) end
return {0, left, rank, ticket, held_by, about, redis.call('GET', counter) or '0'}
