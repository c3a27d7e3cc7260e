-- Raise the token of a vote, and so of every later one, to the one that the servers agreed upon.
--
-- KEYS   1 lock    2 token    3 holder record
-- ARGV   1 owner   2 token
-- Reply  1 the owner has the vote, and the token is at least this    0 it does not have it
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
  local rest = string.match(redis.call('GET', KEYS[3]) or '', '^%d+(\n.*)$')
  if rest then redis.call('SET', KEYS[3], ARGV[2] .. rest, 'KEEPTTL') end
end
return 1
