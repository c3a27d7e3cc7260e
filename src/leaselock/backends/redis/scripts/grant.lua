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
