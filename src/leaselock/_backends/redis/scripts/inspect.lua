-- Read the holders and the waiters; changes nothing.
--
-- KEYS   1 lock   2 queue   3 limit; unless the format is hash, holder record
-- ARGV   1 format: hash, string or vote   2 NUMSUB or SHARDNUMSUB
--        3 beginning of the waiters' channels
-- Reply  {permits of a semaphore or 0; {{ms left, owner, record}, ...};
--         members of the queue whose channel has a subscriber...}
--        NOTALOCK and the type, if the key is not a lock
local lock, record, form = KEYS[1], KEYS[3], ARGV[1]

-- include lock.lua

local owner, about, mode, fields = read()
if owner == nil then return not_a_lock() end
local holds, limit = {}, nil
if mode == 'shared' or mode == 'permits' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for _, hold in ipairs(holds_in(fields)) do
    if hold.ends > now then holds[#holds + 1] = {hold.ends - now, hold.owner, hold.about} end
  end
  table.sort(holds, function(one, other) return one[2] < other[2] end)
  limit = tonumber(redis.call('HGET', lock, 'limit'))
elseif owner then
  holds[1] = {redis.call('PTTL', lock), owner, about}
end
if not limit and form == 'hash' then
  local kept = redis.pcall('GET', KEYS[3])
  limit = type(kept) == 'string' and tonumber(kept)
end
local seen = {limit or 0, holds}
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local address = string.match(member, '^[^\n]*\n([^\n]*)')
  local heard = address and redis.call('PUBSUB', ARGV[2], ARGV[3] .. address)[2]
  if heard ~= 0 then seen[#seen + 1] = member end
end
return seen
