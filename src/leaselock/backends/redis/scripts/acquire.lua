-- Take a lock, confirm a grant that was handed over, or enter the queue.
-- Repeated, it replies the same: a holder gets its token, a waiter keeps its place.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record    5 tombstone of this claim
-- ARGV   1 owner   2 lease in ms   3 member: the claim as the queue has it
--        4 wait: 1 to queue, else 0   5 ticket of an earlier place in the queue, or ''
--        6 longest lease in ms of a grant that is handed over
--        7 PUBLISH or SPUBLISH   8 beginning of the waiters' channels
--        9 after how many ms a waiter asks again by itself
--        10 format: hash, string or vote; hash if it is missing
--        11 how many tokens a grant reserves
-- Reply  {1, token}  granted
--        {0, ms left of the lease, rank in the queue or -1, ticket, owner, record, token}  busy
--        {-1}  the claim was given up for good
local lock, counter, queue, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, member = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local confirm_within, verb, channels, recheck = tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])
local form, reserved = ARGV[10], tonumber(ARGV[11] or 1)

-- include grant.lua

if redis.call('EXISTS', lock, queue, KEYS[5]) == 0 then
  return {1, grant(owner, member, lease, reserved)}
end
if redis.call('EXISTS', KEYS[5]) == 1 then return {-1} end
if holds(owner) then
  if redis.call('PTTL', lock) < lease then
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', record, lease)
  end
  if reserved == 1 then return {1, redis.call('GET', counter) or '0'} end
  local token = string.match(redis.call('GET', record) or '', '^%d+')
  return {1, token or grant(owner, member, math.max(lease, redis.call('PTTL', lock)), reserved)}
end
local left = redis.call('PTTL', lock)
if left == -2 and redis.call('GET', record) == 'left' then
  -- Reserved for Redisson for a moment (release.lua).
  left = redis.call('PTTL', record)
elseif left == -2 then
  local next_one = hand_over(owner)
  if not next_one or next_one == owner then
    redis.call('ZREM', queue, member)
    return {1, grant(owner, member, lease, reserved)}
  end
  left = redis.call('PTTL', lock)
end
local rank, ticket = -1, ''
if ARGV[4] == '1' then
  ticket = redis.call('ZSCORE', queue, member)
  if not ticket then
    ticket = ARGV[5]
    if ticket == '' then
      local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or 0
      local time = redis.call('TIME')
      ticket = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    end
    redis.call('ZADD', queue, ticket, member)
  end
  redis.call('PEXPIRE', queue, 60000)
  rank = redis.call('ZRANK', queue, member)
end
local held_by = holder() or ''
local about = redis.call('GET', record) or ''
-- Notify a client that caches the lock while it does not use it.
local who, place = string.match(about, '^%d+\n%a+\n%d+\n([^\n]*)\n([^\n]*)\n%d+ %d+ cached\n')
if who == held_by then tell(channels .. place, who) end
return {0, left, rank, ticket, held_by, about, redis.call('GET', counter) or '0'}
