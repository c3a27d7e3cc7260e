-- The owner is the field of a hash, as in Redisson, or a string, as in redis-py's lock. A "vote",
-- which is the part of one server in a Redlock, is such a string, too.
local plain = form == 'string' or form == 'vote'

local function holder()
  if plain then return redis.call('GET', lock) end
  return redis.call('HKEYS', lock)[1]
end

local function holds(owner)
  if plain then return redis.call('GET', lock) == owner end
  return redis.call('HEXISTS', lock, owner) == 1
end

-- The token is the counter plus one or the server's clock in microseconds, whichever is greater, so
-- it still rises after the counter was lost with the server's data. The token of a vote is the
-- counter alone, so that servers agree. A grant that reserves several tokens stores the last one.
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
    -- Once before the key exists: a user without the right to it must not create a lock that
    -- never expires.
    redis.call('PEXPIRE', lock, ms)
    redis.call('HSET', lock, who, 1)
    redis.call('PEXPIRE', lock, ms)
  end
  return token
end

-- The number of subscribers; 0 for a user without the right to publish, which must not end the
-- script halfway.
local function tell(channel, word)
  local heard = redis.pcall(verb, channel, word)
  return type(heard) == 'number' and heard or 0
end

-- Grant a free lock to the first waiter whose channel has a subscriber, for a short time in which
-- the waiter must confirm. Returns its owner; false if no claim waits. If the first is *me*, the
-- caller grants the lock itself.
local function hand_over(me)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then return false end
    redis.call('ZREM', queue, first)
    local who, address, ms, tokens = string.match(first, '^([^\n]*)\n([^\n]*)\n(%d+) ?(%d*)')
    if who == me then return me end
    ms = math.min(tonumber(ms), confirm_within)
    local token, micros = draw()
    -- The message contains the grant, so the waiter need not ask for it.
    local news = who .. '\n' .. token .. '\n' .. string.format('%.0f', ms)
    if tell(channels .. address, news) > 0 then
      grant(who, first, ms, tonumber(tokens) or 1, token, micros)
      -- The next waiter must ask before such a short grant has ended.
      local second = ms < recheck and redis.call('ZRANGE', queue, 0, 0)[1]
      if second then
        local other, place = string.match(second, '^([^\n]*)\n([^\n]*)\n')
        tell(channels .. place, other)
      end
      return who
    end
  end
end
