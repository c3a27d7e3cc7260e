-- Change the number of permits of a semaphore. Waiters for more ask again, and are refused.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 limit
-- ARGV   1 permits   2 format: hash   3 for how many ms the token is kept, or 0 for ever
--        4 longest lease in ms of a grant that is handed over
--        5 after how many ms a waiter asks again by itself
--        6 PUBLISH or SPUBLISH   7 beginning of the waiters' channels   8 Redisson's channel
-- Reply  the number of permits; -1 if the name is in use as a lock
local lock, counter, queue, handoff, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local form, token_ttl, confirm_within, recheck = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local verb, channels, freed = ARGV[6], ARGV[7], ARGV[8]
local record = nil

-- include lock.lua

-- include hand_over.lua

-- include enqueue.lua

-- include holds.lua

local wrong = load()
if wrong then return wrong end
wrong = collect()
if wrong then return wrong end
local semaphore = is_semaphore() ~= false
if semaphore then
  -- Before anything is granted: a claim that fits only the number so far stays where it is.
  limit = tonumber(ARGV[1])
  remember_limit()
  if mode then redis.call('HSET', lock, 'limit', limit) end
  for _, member in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local claim = claim_of(member)
    if claim and claim.permits > limit then
      redis.call('ZREM', queue, member)
      wake(member)
    end
  end
end
promote_waiters(false)
return semaphore and limit or -1
