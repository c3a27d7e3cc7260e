-- Extend leases to end no sooner than their length from now; never creates a lock.
--
-- KEYS   for each claim: lock; unless the format is hash, also its holder record
-- ARGV   1 format: hash, string or vote   2... for each claim: lease in ms, owner
-- Reply  for each claim: 1 it holds, 0 it does not
local form, held, now = ARGV[1], {}, nil
local width = form == 'hash' and 1 or 2
for i = 1, #KEYS, width do
  local offset = 2 * (i - 1) / width + 2
  local lock, lease, owner, found, ours = KEYS[i], ARGV[offset], ARGV[offset + 1], nil, nil
  if form == 'hash' then
    found = redis.pcall('HGET', lock, owner)
    ours = found and 1 or 0
  else
    found = redis.pcall('GET', lock)
    ours = found == owner and 1 or 0
  end
  if type(found) == 'table' then
    -- A key that another program has overwritten loses this lease only, not the others.
    if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
    ours = 0
  end
  -- A hold beside others has an end of its own (lock.lua). It may have had none when this request
  -- was sent.
  local ends = form == 'hash' and ours == 1 and tonumber(string.match(found, '^%d+'))
  if ends and ends > 1 then
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    if ends <= now then
      ours = 0
    else
      redis.call('HSET', lock, owner, string.format('%.0f', math.max(ends, now + lease)))
    end
  end
  if ours == 1 and redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
    if form ~= 'hash' then redis.call('PEXPIRE', KEYS[i + 1], lease) end
  end
  held[#held + 1] = ours
end
return held
