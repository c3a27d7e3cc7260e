-- The number of subscribers; 0 for a user without the right to publish, which must not end the
-- script halfway.
local function tell(channel, word)
  local heard = redis.pcall(verb, channel, word)
  return type(heard) == 'number' and heard or 0
end

-- Have a waiter ask again.
local function wake(member)
  local owner, address = string.match(member, '^([^\n]*)\n([^\n]*)\n')
  if owner then tell(channels .. address, owner) end
end

-- What is known of the last hand-off: "offered" and an owner, "left" or "kept out"; else ''.
local function handoff_state()
  local state = redis.pcall('GET', handoff)
  return type(state) == 'string' and state or ''
end

local function client_of(owner) return string.match(owner, '^(.*):') end

-- A waiter was granted the lock and has not confirmed that in time: it is stopped, and others may
-- be, too. So each waiter must show that it lives: it leaves the queue, is notified, and comes
-- back with its ticket while the lock is left free. *mine* asks already.
local function recall(mine)
  redis.call('SET', handoff, 'left', 'PX', 100)
  for _, member in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if string.find(member, '^[^\n]*\n[^\n]*\n') then
      redis.call('ZREM', queue, member)
      if member ~= mine then wake(member) end
    end
  end
end

-- The waiters of other libraries are not in our queue, and while the queue is not empty they would
-- never get the lock. So the first contended release in each tenth of a second asks whether
-- Redisson's channel has more subscribers than ours, to which each of ours subscribes as well. Of
-- programs that poll nothing can be known: for them it is the first one in each second. The lock is
-- left free for as long as they need to take it; meanwhile none of our waiters is granted it, and the
-- first two of them know when that ends.
local function leave_to_others(before, now, heads)
  local interval, ms = 1000000, 100
  if form == 'hash' then interval, ms = 100000, 20 end
  before = form ~= 'vote' and tonumber(before)
  if not before or math.floor(now / interval) == math.floor(before / interval) then return false end
  if form == 'hash' then
    local count = verb == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
    local found = redis.pcall('PUBSUB', count, freed, channels)
    if (found[2] or 0) <= (found[4] or 0) then return false end
    tell(freed, '0')
  end
  redis.call('SET', handoff, 'left', 'PX', ms)
  for _, member in ipairs(heads) do wake(member) end
  return true
end

-- Grant a free lock to the first waiter whose channel has a subscriber, for a short time in which
-- the waiter must confirm. Returns its owner; false if no claim waits. If the first is *me*, the
-- caller grants the lock itself. *heads* are the first two waiters, where the caller knows them;
-- true is returned if the lock *may* be left to others, and is; nil if the first claim is of another
-- mode than exclusive, which is for holds.lua; an error if the counter or the queue cannot be used.
local function hand_over(me, heads, may)
  while true do
    heads = heads or redis.pcall('ZRANGE', queue, 0, 1)
    if heads.err then return heads end
    local member, second = heads[1], heads[2]
    if not member then return false end
    local owner, address, ms, tokens, kind =
      string.match(member, '^([^\n]*)\n([^\n]*)\n(%d+) ?(%d*) ?(%a*)')
    if not owner then return redis.error_reply('UNREADABLE queue a member that is no claim') end
    if kind == 'shared' or kind == 'update' or kind == 'permits' then return nil end
    local lease = math.min(tonumber(ms), confirm_within)
    tokens = tonumber(tokens) or 1
    if owner == me then return me end
    -- include draw.lua
    if wrong then
      -- The waiter asks, and is told.
      wake(member)
      return wrong
    end
    if may and leave_to_others(before, now, heads) then return true end
    redis.call('ZREM', queue, member)
    -- The message contains the grant, so the waiter need not ask for it.
    local news = owner .. '\n' .. token .. '\n' .. string.format('%.0f', lease)
    if tell(channels .. address, news) > 0 then
      -- include hold.lua
      redis.call('SET', handoff, 'offered\n' .. owner, 'PX', lease + 1000)
      -- The next waiter must ask before such a short grant has ended.
      if second and lease < recheck then wake(second) end
      return owner
    end
    heads, may = nil, nil
  end
end
