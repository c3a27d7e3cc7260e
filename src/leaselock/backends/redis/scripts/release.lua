-- Give a claim up, whether it holds or waits, and grant the lock to the next waiter.
-- Repeated, it does nothing.
--
-- KEYS   1 lock    2 token    3 queue    4 holder record    5 tombstone of this claim
-- ARGV   1 owner   2 member: the claim as the queue has it
--        3 for how long in ms to refuse this claim from now on, or 0
--        4 longest lease in ms of a grant that is handed over
--        5 PUBLISH or SPUBLISH   6 beginning of the waiters' channels   7 Redisson's channel
--        8 after how many ms a waiter asks again by itself
--        9 format: hash, string or vote
--        10 the token of the only grant that is meant, or '' for any
-- Reply  1  it held    2  it waited    0  it was not there
local lock, counter, queue, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local confirm_within, verb, channels, recheck = tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[8])
local form = ARGV[9]

-- include grant.lua

-- Redisson's waiters are not in our queue, and while the queue is not empty they would never get
-- the lock. So the first contended release in each tenth of a second checks whether Redisson's channel
-- has more subscribers than the queue has waiters. If so, it leaves the lock free and marks the
-- record for a moment, in which only Redisson can take the lock.
local function left_to_redisson(about)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local granted = first and tonumber(string.match(about, '^%d+\n%a+\n(%d+)\n'))
  if not granted then return false end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if math.floor(now / 100000) == math.floor(granted / 100000) then return false end
  local counted = redis.pcall('PUBSUB', verb == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', ARGV[7])
  local others, seen = tonumber(counted[2]) or 0, {}
  for _, member in ipairs(redis.call('ZRANGE', queue, 0, 999)) do
    local address = string.match(member, '^[^\n]*\n([^\n]*)') or ''
    if not seen[address] then others = others - 1 end
    seen[address] = true
  end
  if others <= 0 then return false end
  redis.call('SET', record, 'left', 'PX', 20)
  tell(ARGV[7], '0')
  local who, place = string.match(first, '^([^\n]*)\n([^\n]*)\n')
  tell(channels .. place, who)
  return true
end

-- A late request to end one grant must not end a later one.
local function meant()
  local only = ARGV[10] or ''
  return only == '' or string.match(redis.call('GET', record) or '', '^%d+') == only
end

local was, about = 0, nil
if holds(ARGV[1]) and meant() then
  was = 1
  local waited_for = redis.call('EXISTS', queue) == 1
  if waited_for then about = redis.call('GET', record) or '' end
  -- Before anything else: a server without free memory still allows commands that free some.
  redis.call('DEL', lock, record)
  if not waited_for then tell(ARGV[7], '0') end
elseif redis.call('ZREM', queue, ARGV[2]) == 1 then
  was = 2
end
if ARGV[3] ~= '0' then redis.call('SET', KEYS[5], '', 'PX', ARGV[3]) end
if about and not left_to_redisson(about) and not hand_over('') then tell(ARGV[7], '0') end
return was
