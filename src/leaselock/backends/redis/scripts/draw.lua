-- Draw *tokens* consecutive tokens: the first is the server's clock in microseconds, or the counter
-- plus one if that is greater, so it rises after the counter has expired or was lost with the
-- server's data. The token of a vote is the counter plus one, so that servers agree.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local first, before = now, nil
if form == 'vote' then
  before = redis.call('GET', counter)
  first = (tonumber(before) or 0) + 1
  redis.call('SET', counter, string.format('%.0f', first))
else
  local last = string.format('%.0f', first + tokens - 1)
  if token_ttl == '0' then
    before = redis.call('SET', counter, last, 'GET')
  else
    before = redis.call('SET', counter, last, 'PX', token_ttl, 'GET')
  end
  if (tonumber(before) or 0) >= first then
    first = before + 1
    redis.call('SET', counter, string.format('%.0f', first + tokens - 1), 'KEEPTTL')
  end
end
local token = string.format('%.0f', first)
