-- Who holds and who waits; changes nothing.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record
-- Reply  {ms left, owner or '', record, token, members of the queue...}
local seen = {
  redis.call('PTTL', KEYS[1]),
  redis.call('HKEYS', KEYS[1])[1] or '',
  redis.call('GET', KEYS[4]) or '',
  redis.call('GET', KEYS[2]) or '0',
}
for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do seen[#seen + 1] = member end
return seen
