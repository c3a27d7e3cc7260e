-- End the hold, and grant the lock to the next waiter.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record
-- ARGV   1 the token of the grant to end, or ''  for any
--        2 longest lease in ms of a grant that is handed over
--        3 PUBLISH or SPUBLISH   4 beginning of the waiters' channels   5 Redisson's channel
--        6 after how many ms a waiter asks again by itself   7 format: hash, string or vote
-- Reply  {1, owner, record, token}  the hold was ended
--        {0, owner, record, token}  it is held by another grant; owner '' when it is free
local lock, counter, queue, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local confirm_within, verb, channels, recheck = tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[6])
local form = ARGV[7]

-- include grant.lua

if redis.call('EXISTS', lock) == 0 then hand_over('') end
local owner = holder()
if not owner then return {0, '', '', '0'} end
local about, token = redis.call('GET', record) or '', redis.call('GET', counter) or '0'

-- Whether the word is a token of this grant, which may have reserved several.
local function named(word)
  if word == '' or word == token then return true end
  local first, who, tokens = string.match(about, '^(%d+)\n%a+\n%d+\n([^\n]*)\n[^\n]*\n%d+ (%d+)')
  if who ~= owner then return false end
  local place = tonumber(word) - tonumber(first)
  return place >= 0 and place < tonumber(tokens)
end

if not named(ARGV[1]) then return {0, owner, about, token} end
redis.call('DEL', lock, record)
if not hand_over('') then tell(ARGV[5], '0') end
return {1, owner, about, token}
