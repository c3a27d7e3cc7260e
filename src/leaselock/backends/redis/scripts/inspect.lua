-- Read the holder and the waiters; changes nothing.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record
-- ARGV   1 NUMSUB or SHARDNUMSUB   2 beginning of the waiters' channels
--        3 format: hash, string or vote
-- Reply  {ms left, owner or '', record, token,
--         members of the queue whose channel has a subscriber...}
local owner
if ARGV[3] == 'string' or ARGV[3] == 'vote' then
  owner = redis.call('GET', KEYS[1])
else
  owner = redis.call('HKEYS', KEYS[1])[1]
end
local seen = {
  redis.call('PTTL', KEYS[1]),
  owner or '',
  redis.call('GET', KEYS[4]) or '',
  redis.call('GET', KEYS[2]) or '0',
}
for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local address = string.match(member, '^[^\n]*\n([^\n]*)')
  local heard = address and redis.call('PUBSUB', ARGV[1], ARGV[2] .. address)[2]
  if heard ~= 0 then seen[#seen + 1] = member end
end
return seen
