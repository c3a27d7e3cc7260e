-- Enter the queue, or keep the position in it; returns the rank, and the ticket. Uses index, which only
-- the scripts that acquire have. The hold that is waited for may be of a program that writes no index.
local function enqueue(member, ticket, last)
  if ticket == '' then
    last = last or redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
    local time = redis.call('TIME')
    ticket = math.max((last[2] or 0) + 1, time[1] * 1000000 + time[2])
    ticket = string.format('%.0f', ticket)
  end
  if redis.call('ZADD', queue, 'NX', ticket, member) == 0 then
    ticket = redis.call('ZSCORE', queue, member)
  else
    local now = ticket
    -- include add_to_index.lua
  end
  redis.call('PEXPIRE', queue, 60000)
  return redis.call('ZRANK', queue, member), ticket
end

-- Notify a client that caches the lock while it does not use it.
local function revoke(about)
  local pattern = '^%d+\n%a+\n%d+\n([^\n]*)\n([^\n]*)\n%d+ %d+ cached\n'
  local who, address = string.match(about, pattern)
  if who then tell(channels .. address, who) end
end
