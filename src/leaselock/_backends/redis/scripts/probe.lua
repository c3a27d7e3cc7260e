-- Try what the other scripts need of a server. No client listens to the channel, and the key is gone at
-- the end.
--
-- KEYS   1 a key that no lock has
-- ARGV   1 PUBLISH or SPUBLISH   2 NUMSUB or SHARDNUMSUB   3 a channel that no lock has
-- Reply  why PUBLISH, PUBSUB, SET with GET, EXISTS with a key named twice, and unpack cannot be used;
--        '' for each that can
local key, channel = KEYS[1], ARGV[3]

local function refusal(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or ''
end

local set = refusal('SET', key, '1', 'PX', 1000, 'GET')
local twice = redis.pcall('EXISTS', key, key)
local exists = type(twice) == 'table' and twice.err or 'it counts a key once'
-- Without the key nothing can be said of it.
if twice == 2 or set ~= '' then exists = '' end
redis.pcall('DEL', key)
local done, problem = pcall(function() return unpack({'1', '2'}) end)
return {
  refusal(ARGV[1], channel, ''), refusal('PUBSUB', ARGV[2], channel), set, exists,
  done and '' or tostring(problem),
}
