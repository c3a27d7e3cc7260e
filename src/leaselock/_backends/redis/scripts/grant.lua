-- What each grant does, of the first claim and of one that waited.

-- Draw a token at the time *now*, in microseconds; returns it, what the counter was before, and an error
-- if that cannot be used; then it has the same value. The token is the server's clock, or the counter
-- plus one if that is greater, so it rises after the counter has expired or was lost with the server's
-- data. For a vote it is the time of the claim, in place of the server's clock, so that the servers
-- agree. A number of Lua is exact up to 2^53: above that, two grants could have the same token. Such a
-- number has no expiry afterwards: one that had one was set by hand, and reading it first would be
-- another call of each grant.
local function draw(member, now)
  local token, before = now, nil
  -- A quarter of the lifetime of a counter; an hour where it has none.
  local margin = token_ttl == '0' and 3600000000 or token_ttl * 250
  if form == 'vote' then
    before = redis.pcall('GET', counter)
    -- Limited to the neighbourhood of this server's clock: when the counter has expired, each time
    -- that may be used then is later than what it was.
    local since = string.match(member, '^[^\n]*\n[^\n]*\n[^\n]*\n(%d+%.?%d*)')
    token = math.floor((tonumber(since) or 0) * 1000000)
    token = math.min(math.max(token, now - 2 * margin), now + margin)
  elseif token_ttl == '0' then
    before = redis.pcall('SET', counter, string.format('%.0f', token), 'GET')
  else
    before = redis.pcall('SET', counter, string.format('%.0f', token), 'PX', token_ttl, 'GET')
  end
  if type(before) == 'table' then return nil, nil, before end
  token = math.max(token, (tonumber(before) or 0) + 1)
  if token > 9007199254740991 then
    if form ~= 'vote' then redis.call('SET', counter, before) end
    return nil, nil, redis.error_reply('BADCOUNTER ' .. before)
  end
  local drawn = string.format('%.0f', token)
  if form == 'vote' or token > now then
    -- A counter that the clock may not have passed by then must not expire.
    if token_ttl == '0' or token > now + margin then
      redis.call('SET', counter, drawn)
    else
      redis.call('SET', counter, drawn, 'PX', token_ttl)
    end
  end
  return drawn, before
end

-- Write the only hold, which lasts *lease* ms; returns an error if there is one.
local function write_only(owner, token, member, lease, now)
  local about = token .. '\neither\n' .. string.format('%.0f', now) .. '\n' .. member
  if form ~= 'hash' then
    redis.call('SET', record, about, 'PX', lease)
    redis.call('SET', lock, owner, 'PX', lease)
    return nil
  end
  -- To Redisson's locks for reading and writing, a hash without the field "mode" is free.
  redis.call('HSET', lock, owner, 1, 'about:' .. owner, about, 'mode', 'exclusive')
  local done = redis.pcall('PEXPIRE', lock, lease)
  if done ~= 1 then
    -- A user without the right to it must not create a lock that never expires.
    redis.call('HDEL', lock, owner, 'about:' .. owner, 'mode')
    return done
  end
end
