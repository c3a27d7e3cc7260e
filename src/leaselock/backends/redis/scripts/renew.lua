-- Extend leases to end no sooner than their length from now; never creates a lock.
--
-- KEYS   for each claim: lock, holder record
-- ARGV   for each claim: lease in ms, owner; at last the format: hash, string or vote
-- Reply  for each claim: 1 it holds, 0 it does not
local form, held = ARGV[#KEYS + 1], {}
for i = 1, #KEYS, 2 do
  local lease, owner = tonumber(ARGV[i]), ARGV[i + 1]
  local ours
  if form == 'string' or form == 'vote' then
    ours = redis.pcall('GET', KEYS[i])
    if type(ours) ~= 'table' then ours = ours == owner and 1 or 0 end
  else
    ours = redis.pcall('HEXISTS', KEYS[i], owner)
  end
  if type(ours) == 'table' then
    -- A key that another program has overwritten loses this lease only, not the others.
    if not string.find(ours.err, 'WRONGTYPE', 1, true) then return ours end
    ours = 0
  end
  if ours == 1 and redis.call('PTTL', KEYS[i]) < lease then
    redis.call('PEXPIRE', KEYS[i], lease)
    redis.call('PEXPIRE', KEYS[i + 1], lease)
  end
  held[#held + 1] = ours
end
return held
