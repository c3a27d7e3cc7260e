-- Delete a token counter that has no expiry and was last used long ago.
--
-- KEYS   1 token   2 lock
-- ARGV   1 for how many ms a token is kept
-- Reply  1 deleted   0 kept: it expires by itself, is in use, or is counted by another program
if redis.call('PTTL', KEYS[1]) ~= -1 or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local time, last = redis.call('TIME'), redis.pcall('GET', KEYS[1])
last = type(last) == 'string' and tonumber(string.match(last, '^%d+$'))
-- A counter of ours is a time in microseconds; one of Redisson alone begins at 1.
if not last or last < 1000000000000000 then return 0 end
if time[1] * 1000 + (time[2] - last) / 1000 < tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
