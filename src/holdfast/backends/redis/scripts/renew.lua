-- Let leases end no sooner than their length from now; never makes a lock.
--
-- KEYS   for each claim: lock, holder record
-- ARGV   for each claim: lease in ms, owner; at last hash or string
-- Reply  for each claim: 1 it holds, 0 it does not
local form, held = ARGV[#KEYS + 1], {}
for i = 1, #KEYS, 2 do
  local lease, owner = tonumber(ARGV[i]), ARGV[i + 1]
  local ours
  if form == 'string' or form == 'vote' then
    ours = redis.call('GET', KEYS[i]) == owner and 1 or 0
  else
    ours = redis.call('HEXISTS', KEYS[i], owner)
  end
  if ours == 1 and redis.call('PTTL', KEYS[i]) < lease then
    redis.call('PEXPIRE', KEYS[i], lease)
    redis.call('PEXPIRE', KEYS[i + 1], lease)
  end
  held[#held + 1] = ours
end
return held
