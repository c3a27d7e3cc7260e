-- Draw *tokens* consecutive tokens: the first is the server's clock in microseconds, or the counter
-- plus one if that is greater, so it rises after the counter has expired or was lost with the
-- server's data. For a vote it is the time of the claim, in place of the server's clock, so that the
-- servers agree. *wrong* is an error if the counter cannot be used; then it has the same value. A
-- number of Lua is exact up to 2^53: above that, two grants could have the same token. Such a number
-- has no expiry afterwards: one that had one was set by hand, and reading it first would be another
-- call of each grant.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local first, before, wrong = now, nil, nil
-- A quarter of the lifetime of a counter; an hour where it has none.
local margin = token_ttl == '0' and 3600000000 or token_ttl * 250
if form == 'vote' then
  before = redis.pcall('GET', counter)
  -- Limited to the neighbourhood of this server's clock: when the counter has expired, each time that
  -- may be used then is later than what it was.
  local since = string.match(member, '^[^\n]*\n[^\n]*\n[^\n]*\n(%d+%.?%d*)')
  first = math.floor((tonumber(since) or 0) * 1000000)
  first = math.min(math.max(first, now - 2 * margin), now + margin)
else
  local last = string.format('%.0f', first + tokens - 1)
  if token_ttl == '0' then
    before = redis.pcall('SET', counter, last, 'GET')
  else
    before = redis.pcall('SET', counter, last, 'PX', token_ttl, 'GET')
  end
end
if type(before) == 'table' then
  wrong = before
else
  first = math.max(first, (tonumber(before) or 0) + 1)
  if first > 9007199254740992 - tokens then
    if form ~= 'vote' then redis.call('SET', counter, before) end
    wrong = redis.error_reply('BADCOUNTER ' .. before)
  elseif form == 'vote' or first > now then
    local last = string.format('%.0f', first + tokens - 1)
    -- A counter that the clock may not have passed by then must not expire.
    if token_ttl == '0' or first > now + margin then
      redis.call('SET', counter, last)
    else
      redis.call('SET', counter, last, 'PX', token_ttl)
    end
  end
end
local token = string.format('%.0f', first)
