-- Acquire in another mode than exclusive: as a reader, for an update, or some permits.
-- Repeated, it replies the same: a holder gets its token, a waiter keeps its position.
--
-- KEYS   1 lock   2 token   3 queue   4 hand-off   5 tombstone of this claim   6 index   7 limit
-- ARGV   as acquire.lua
-- Reply  as acquire.lua
local lock, counter, queue, handoff, index, limits =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7]
local member, form, token_ttl = ARGV[3], ARGV[5], ARGV[6]
local confirm_within, recheck = tonumber(ARGV[9]), tonumber(ARGV[10])
local verb, channels, freed = ARGV[11], ARGV[12], ARGV[13]
local record = nil

-- include lock.lua

-- include hand_over.lua

-- include enqueue.lua

-- include holds.lua

local reply = acquire(claim_of(member), ARGV[7] == '1', ARGV[8])
if reply[1] == 1 and ARGV[14] then keep_permits(ARGV[1], tonumber(ARGV[14]), ARGV[15] == '1') end
return reply
