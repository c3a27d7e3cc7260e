-- Let leases end no sooner than their length from now; never makes a lock.
--
-- KEYS   for each claim: lock, holder record
-- ARGV   for each claim: lease in ms, owner
-- Reply  for each claim: 1 it holds, 0 it does not
local held = {}
for i = 1, #KEYS, 2 do
  local lease, owner = tonumber(ARGV[i]), ARGV[i + 1]
  local ours = redis.call('HEXISTS', KEYS[i], owner)
  if ours == 1 and redis.call('PTTL', KEYS[i]) < lease then
    redis.call('PEXPIRE', KEYS[i], lease)
    redis.call('PEXPIRE', KEYS[i + 1], lease)
  end
  held[#held + 1] = ours
end
return held
