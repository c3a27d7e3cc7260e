-- Raise the token of a vote, and so of every later one, to the one that the servers agreed upon.
--
-- KEYS   1 lock    2 token    3 holder record
-- ARGV   1 owner   2 token   3 for how many ms the token is kept, or 0 for ever
-- Reply  1 the owner has the vote, and the token is at least this    0 it does not have it
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local before, record = redis.pcall('GET', KEYS[2]), redis.call('GET', KEYS[3])
if type(before) == 'table' then return before end
if (tonumber(before) or 0) < tonumber(ARGV[2]) then
  local time = redis.call('TIME')
  local ahead = ARGV[2] - (time[1] * 1000000 + time[2])
  -- As in grant.lua: a counter that the clock may not have passed by then must not expire.
  if ARGV[3] == '0' or ahead > ARGV[3] * 250 then
    redis.call('SET', KEYS[2], ARGV[2])
  else
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  end
  local rest = string.match(record or '', '^%d+(\n.*)$')
  if rest then redis.call('SET', KEYS[3], ARGV[2] .. rest, 'KEEPTTL') end
end
return 1
