-- Change the lifetime of a hold, in its record.
--
-- KEYS   1 lock   2 holder record
-- ARGV   1 owner  2 lifetime: lease, either or client   3 format: hash, string or vote
-- Reply  1 done   0 the lock is not this owner's
local held
if ARGV[3] == 'string' or ARGV[3] == 'vote' then
  held = redis.call('GET', KEYS[1]) == ARGV[1]
else
  held = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
end
if not held then return 0 end
local token, rest = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+)\n%a+\n(.*)$')
if not token then return 0 end
redis.call('SET', KEYS[2], token .. '\n' .. ARGV[2] .. '\n' .. rest, 'KEEPTTL')
return 1
