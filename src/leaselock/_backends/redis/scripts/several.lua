-- What only locks with several holds need: readers beside an update, or permits. It is the text of
-- state.several() in queue.lua, and uses lock.lua, grant.lua and marks_in.
--
-- Who writes mode, used, update, upgrading, limit or next_end of the hash writes the field of `state`,
-- too, and sets state.holds to nil.
--
-- A record: token, lifetime, time of the grant in µs; then the claim: owner, address, "ms 1 mode permits
-- limit", start of the wait, metadata. A line feed separates them.

-- The token and the claim of a record, which begins with the token, the lifetime and the time of the
-- grant. A hold without a record counts as one. The claim is nil if the record cannot be read.
function state.in_record(about)
  if about == '' then return '0', {permits = 1} end
  local token, member = string.match(about, '^(%d+)\n%a+\n%d+\n(.*)$')
  return token or '0', member and state.claim_of(member)
end

function state.with_marks(numbers, free_from, before, after)
  numbers = numbers and '"slots": [' .. numbers .. '], ' or ''
  return before .. numbers .. (free_from and '"free_from": ' .. free_from .. ', ' or '') .. after
end

-- Read how many permits an idle semaphore has; returns an error, if there is one.
function state.load_limit()
  if state.limit then return nil end
  local kept = state.limits and redis.pcall('GET', state.limits)
  if type(kept) == 'table' then return kept end
  state.limit = tonumber(kept or 0) or 0
end

-- While the semaphore is idle, its number of permits is kept for a week.
function state.remember_limit()
  if state.limit > 0 then redis.call('SET', state.limits, state.limit, 'PX', 604800000) end
end

-- The member or record with the lowest numbers that no hold has, if it is yet to be numbered; and its
-- numbers.
function state.numbered(about, permits)
  local numbers, free_from, before, after = state.marks_in(about)
  if numbers ~= '' then return about, numbers end
  local taken, free, number = {}, {}, 0
  for _, hold in ipairs(state.all_holds()) do
    for slot in string.gmatch(state.marks_in(hold.about) or '', '%d+') do taken[tonumber(slot)] = true end
  end
  while #free < permits do
    if not taken[number] then free[#free + 1] = number end
    number = number + 1
  end
  numbers = table.concat(free, ', ')
  return state.with_marks(numbers, free_from, before, after), numbers
end

-- Make the hash last until a hold has ended; a while longer if that must be confirmed, so that the
-- next request sees that it was not. A *new* hash has no end.
function state.keep(ends, offered, new)
  local ms = ends - state.now_ms() + (offered and state.confirm_within or 0)
  if not new and redis.call('PTTL', state.lock) >= ms then return 1 end
  return redis.pcall('PEXPIRE', state.lock, state.text(ms))
end

function state.remove(owner, permits)
  state.holds = nil
  state.used = state.used - permits
  if state.used <= 0 then
    redis.call('DEL', state.lock)
    if state.mode == 'permits' then state.remember_limit() end
    state.mode, state.used, state.update, state.upgrading, state.next_end = false, 0, false, false, nil
    return
  end
  redis.call('HDEL', state.lock, owner, 'about:' .. owner)
  if state.update == owner then
    redis.call('HDEL', state.lock, 'update', 'upgrading')
    state.update, state.upgrading = false, false
  end
  redis.call('HSET', state.lock, 'used', state.used)
end

-- As `state.write` in queue.lua, for a hold beside others.
function state.write_beside(claim, token, lease, offered)
  local member, owner = claim.member, claim.owner
  local first = not state.mode
  if first then state.mode, state.used, state.next_end = claim.kind == 'permits' and 'permits' or 'shared', 0, nil end
  if claim.kind == 'permits' then member, claim.slots = state.numbered(member, claim.permits) end
  local ends = state.now_ms() + lease
  state.used, state.next_end, state.holds = state.used + claim.permits, math.min(state.next_end or ends, ends), nil
  local fields = {
    owner, state.text(ends) .. (offered and ' offered' or ''),
    'about:' .. owner, token .. '\neither\n' .. state.text(state.clock()) .. '\n' .. member,
    'mode', state.mode, 'used', state.used, 'next_end', state.text(state.next_end),
  }
  if state.mode == 'permits' then
    fields[#fields + 1], fields[#fields + 2] = 'limit', state.limit
  elseif claim.kind == 'update' then
    state.update = owner
    fields[#fields + 1], fields[#fields + 2] = 'update', owner
  end
  redis.call('HSET', state.lock, unpack(fields))
  local done = state.keep(ends, offered, first)
  if done ~= 1 then
    -- A user without the right to it must not create a lock that never expires.
    state.remove(owner, claim.permits)
    return done
  end
end

-- A waiter was granted the lock and has not confirmed that in time: it is stopped, and others may
-- be, too. So each waiter must show that it lives: it leaves the queue, is notified, and comes
-- back with its ticket while the lock is left free. *mine* asks already.
function state.recall(mine)
  state.leave_free(100)
  for _, member in ipairs(redis.call('ZRANGE', state.queue, 0, -1)) do
    if string.find(member, '^[^\n]*\n[^\n]*\n') then
      redis.call('ZREM', state.queue, member)
      if member ~= mine then state.wake(member) end
    end
  end
end

-- Remove the holds that have ended; returns an error, if there is one.
function state.remove_ended()
  if not state.next_end or state.now_ms() < state.next_end then return nil end
  local first, last, lapsed, found = nil, nil, false, state.all_holds()
  for _, hold in ipairs(found) do
    local _, claim = state.in_record(hold.about)
    if not (hold.ends and claim) then return unreadable('a hold of ' .. hold.owner) end
    hold.permits = claim.permits
  end
  for _, hold in ipairs(found) do
    if hold.ends <= state.now_ms() then
      state.remove(hold.owner, hold.permits)
      if state.own and state.own.owner == hold.owner then state.own = nil end
      lapsed = lapsed or hold.offered
    else
      first = math.min(first or hold.ends, hold.ends)
      if not last or hold.ends > last.ends then last = hold end
    end
  end
  if first then
    state.next_end = first
    redis.call('HSET', state.lock, 'next_end', state.text(first))
    redis.call('PEXPIRE', state.lock, state.text(last.ends - state.now_ms() + (last.offered and state.confirm_within or 0)))
  end
  if lapsed then state.recall('') end
end

-- The record of a hold that has another mode now, and perhaps another token.
function state.converted(about, kind, step, token)
  local before, grant, ms, permits, rest =
    string.match(about, '^(%d+)\n(%a+\n%d+\n[^\n]*\n[^\n]*\n)(%d+) ?%d* ?%a* ?(%d*)[^\n]*(\n.*)$')
  local lease_fields = {ms, 1, kind, permits == '' and 1 or permits, 0, step}
  return (token or before) .. '\n' .. grant .. table.concat(lease_fields, ' ') .. rest
end

function state.step_of(about)
  return tonumber(string.match(about, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]* (%d+)\n'))
end

-- The last reader has released: the upgrade is complete. Returns an error if no token can be drawn,
-- or the hold cannot be read.
function state.complete(me)
  local owner, address = string.match(state.upgrading, '^([^\n]*)\n(.*)$')
  local about = redis.call('HGET', state.lock, 'about:' .. owner) or ''
  local ends = string.match(redis.call('HGET', state.lock, owner) or '', '^%d+')
  local _, hold = state.in_record(about)
  if not (ends and hold and about ~= '') then return unreadable('a hold of ' .. owner) end
  local token, _, wrong = draw('', state.clock())
  if wrong then
    -- It asks again, and is told.
    if owner ~= me then state.tell(state.channels .. address, owner) end
    return wrong
  end
  about = state.converted(about, 'exclusive', state.step_of(about), token)
  redis.call('HDEL', state.lock, 'used', 'update', 'upgrading', 'next_end')
  redis.call('HSET', state.lock, owner, 1, 'about:' .. owner, about, 'mode', 'exclusive')
  redis.call('PEXPIRE', state.lock, state.text(ends - state.now_ms()))
  state.mode, state.used, state.update, state.upgrading, state.next_end, state.holds = 'exclusive', 0, false, false, nil, nil
  if owner ~= me then state.tell(state.channels .. address, owner) end
end

-- Whether the lock is in use as a semaphore; nil if it is not in use.
function state.is_semaphore()
  if state.mode then return state.mode == 'permits' end
  local head = redis.pcall('ZRANGE', state.queue, 0, 0)[1]
  local claim = head and state.claim_of(head)
  if claim then return claim.kind == 'permits' end
end
