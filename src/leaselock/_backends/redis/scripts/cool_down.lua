-- Release a hold whose lock stays taken for a while. What is left of it has another owner, so that
-- no late request of the claim can touch it. Repeated, it does nothing.
--
-- KEYS   1 lock   2 tombstone of this claim   3 queue
-- ARGV   1 owner   2 for how long in ms to refuse this claim from now on, or 0
--        3 PUBLISH or SPUBLISH   4 beginning of the waiters' channels
-- Reply  1 it held, and the lock stays taken    0 the lock is to be released as usual
local lock, owner = KEYS[1], ARGV[1]
local held = redis.call('HEXISTS', lock, owner) == 1
local about = held and redis.call('HGET', lock, 'about:' .. owner)
-- Permits have an end of their own (lock.lua), in seconds at the beginning of the metadata (marks.py).
local marks = string.match(about or '', '^.*\n{([^\n]*)$') or ''
local permits = string.match(marks, '^"free_from": (%d+%.%d+), ')
  or string.match(marks, '^"slots": %[[%d, ]*%], "free_from": (%d+%.%d+), ')
local free_from = held and redis.call('HGET', lock, 'free_from')
if permits then free_from = string.format('%.0f', permits * 1000) end
if not free_from then return 0 end
local time = redis.call('TIME')
local remaining_ms = (tonumber(free_from) or 0) - (time[1] * 1000 + math.floor(time[2] / 1000))
if remaining_ms <= 0 then return 0 end
local rest = owner .. ':released'
local token, since, behind = string.match(about or '', '^(%d+)\n%a+\n(%d+)\n[^\n]*\n(.*)$')
redis.call('HDEL', lock, owner, 'about:' .. owner)
redis.call('HSET', lock, rest, permits and free_from or 1)
if token then
  about = token .. '\ncooling\n' .. since .. '\n' .. rest .. '\n' .. behind
  redis.call('HSET', lock, 'about:' .. rest, about)
end
if permits then
  local next_end = tonumber(redis.call('HGET', lock, 'next_end'))
  redis.call('HSET', lock, 'next_end', string.format('%.0f', math.min(next_end or 0, free_from)))
else
  redis.call('PEXPIRE', lock, string.format('%.0f', remaining_ms))
end
if ARGV[2] ~= '0' then redis.call('SET', KEYS[2], '', 'PX', ARGV[2]) end
-- The first waiter knows a later end: that of the lease.
local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
local waiter, address = string.match(first or '', '^([^\n]*)\n([^\n]*)\n')
if waiter then redis.pcall(ARGV[3], ARGV[4] .. address, waiter) end
return 1
