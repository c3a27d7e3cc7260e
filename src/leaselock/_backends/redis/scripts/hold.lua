-- Write the hold of *owner*, with *token*, for *lease* ms.
local about = token .. '\neither\n' .. string.format('%.0f', now) .. '\n' .. member
if form == 'hash' then
  -- To Redisson's locks for reading and writing, a hash without the field "mode" is free.
  redis.call('HSET', lock, owner, 1, 'about:' .. owner, about, 'mode', 'exclusive')
  local done = redis.pcall('PEXPIRE', lock, lease)
  if done ~= 1 then
    -- A user without the right to it must not create a lock that never expires.
    redis.call('HDEL', lock, owner, 'about:' .. owner, 'mode')
    return done
  end
else
  redis.call('SET', record, about, 'PX', lease)
  redis.call('SET', lock, owner, 'PX', lease)
end
