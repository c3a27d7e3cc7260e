-- Change the lifetime of a hold, in its record.
--
-- KEYS   1 lock   2 holder record, unless the format is hash
-- ARGV   1 owner   2 lifetime: lease, either or client   3 format: hash, string or vote
-- Reply  1 done   0 the lock is not this owner's
local lock, record, owner, about = KEYS[1], KEYS[2], ARGV[1], nil
if ARGV[3] == 'hash' then
  about = redis.call('HGET', lock, 'about:' .. owner)
else
  about = redis.call('GET', lock) == owner and redis.call('GET', record)
end
local token, rest = string.match(about or '', '^(%d+)\n%a+\n(.*)$')
if not token then return 0 end
about = token .. '\n' .. ARGV[2] .. '\n' .. rest
if ARGV[3] == 'hash' then
  redis.call('HSET', lock, 'about:' .. owner, about)
else
  redis.call('SET', record, about, 'KEEPTTL')
end
return 1
