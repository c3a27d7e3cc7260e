-- Read the holders and the waiters; changes nothing.
--
-- KEYS   1 lock   2 queue   3 limit; unless the format is hash, holder record   4 token
-- ARGV   1 format: hash, string or vote   2 NUMSUB or SHARDNUMSUB
--        3 beginning of the waiters' channels
-- Reply  {permits of a semaphore or 0; {{ms left, owner, record}, ...}; ms of the clock;
--         members of the queue whose channel has a subscriber...}
--        the ms left are nil where they cannot be read
--        NOTALOCK and the type, if the key is not a lock
--        UNREADABLE, which record it is, and why
local lock, record, form = KEYS[1], KEYS[3], ARGV[1]

-- include lock.lua

local known, found = read()
if not known or known.foreign then
  local wrong = not_a_lock()
  -- Other keys of the lock show that it is none of the application.
  if string.sub(wrong.err, 1, 8) == 'NOTALOCK' and redis.call('EXISTS', KEYS[2], KEYS[4]) > 0 then
    return redis.error_reply('UNREADABLE type ' .. string.sub(wrong.err, 10))
  end
  return wrong
end
local members = redis.pcall('ZRANGE', KEYS[2], 0, -1)
if members.err then return members end
local mode, holds, limit = mode_of(known, found[1]), {}, tonumber(known.limit)
if mode == nil then return unreadable(BESIDE) end
-- A user who may only read may not ask for the time.
local time = redis.pcall('TIME')
local now = time.err and 0 or time[1] * 1000 + math.floor(time[2] / 1000)
if mode == 'exclusive' then
  holds[1] = {redis.call('PTTL', lock), found[1].owner, found[1].about}
elseif mode then
  if time.err then return time end
  for _, hold in ipairs(found) do
    local remaining_ms = hold.ends and hold.ends - now
    if not remaining_ms or remaining_ms > 0 then
      holds[#holds + 1] = {remaining_ms or false, hold.owner, hold.about}
    end
  end
  table.sort(holds, function(one, other) return one[2] < other[2] end)
end
if not limit and form == 'hash' then
  local kept = redis.pcall('GET', KEYS[3])
  limit = type(kept) == 'string' and tonumber(kept)
end
local seen = {limit or 0, holds, now}
for _, member in ipairs(members) do
  local address = string.match(member, '^[^\n]*\n([^\n]*)')
  local heard = address and redis.call('PUBSUB', ARGV[2], ARGV[3] .. address)[2]
  if heard ~= 0 then seen[#seen + 1] = member end
end
return seen
