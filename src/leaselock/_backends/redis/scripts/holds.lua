-- Locks with several holds: readers beside an update, or the permits of a semaphore.
--
-- Their hash has for each hold: owner -> its end in ms of the server's clock, followed by " offered"
-- until a waiter that was granted it has confirmed; "about:" and the owner -> its record. Besides
-- mode (shared or permits), used (how many holds, or permits), update (the owner of that hold),
-- upgrading (the same and its address, while it waits to become exclusive), limit, and next_end:
-- no hold ends before. So an acquire beside holds, and a release, read a few fields. All of them are
-- read after `next_end`, for a refusal and to number permits.
-- An exclusive hold is stored as in hold.lua, and ends with the hash.
--
-- A record that another program has written, or that is damaged, is answered by the error UNREADABLE:
-- nothing is granted then, and nothing of it is removed.
--
-- Uses lock, counter, queue, handoff, form, token_ttl, confirm_within, recheck, verb, channels and
-- freed, the functions of lock.lua and hand_over.lua, and limits: the key of the number of permits
-- of an idle semaphore, or nil where no permits can be granted. Only `acquire` uses index.
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local mode, used, update, upgrading, limit, next_end
-- The claim that asks, if it was granted, with its token and the numbers of its permits.
local mine

local function text(number) return string.format('%.0f', number) end

local function draw(tokens)
  -- include draw.lua
  return token, now, before, wrong
end

-- A claim, as a member of the queue has it; nil if it is none.
local function claim_of(member)
  local owner, address, ms, tokens, kind, permits, wanted =
    string.match(member, '^([^\n]*)\n([^\n]*)\n(%d+) ?(%d*) ?(%a*) ?(%d*) ?(%d*)[^\n]*\n')
  if not owner then return nil end
  if kind == '' or kind == 'cached' then kind = 'exclusive' end
  return {
    member = member, owner = owner, address = address, lease = tonumber(ms), kind = kind,
    tokens = tonumber(tokens) or 1, permits = tonumber(permits) or 1, limit = tonumber(wanted) or 0,
  }
end

-- The token and the claim of a record, which begins with the token, the lifetime and the time of the
-- grant. A hold without a record counts as one. The claim is nil if the record cannot be read.
local function in_record(about)
  if about == '' then return '0', {permits = 1} end
  local token, member = string.match(about, '^(%d+)\n%a+\n%d+\n(.*)$')
  return token or '0', member and claim_of(member)
end

-- What marks.py notes at the beginning of the metadata of a member or of the record of a hold: the
-- numbers of its permits, nil if they are not numbered; and until when the permits stay taken, in
-- seconds. Also returns the text before the marks and after them; nil if there is no metadata.
local function marks_in(text)
  local before, after = string.match(text, '^(.*\n{)([^\n]*)$')
  if not before then return nil end
  local numbers, rest = string.match(after, '^"slots": %[([%d, ]*)%], (.*)$')
  after = rest or after
  local free_from, behind = string.match(after, '^"free_from": (%d+%.%d+), (.*)$')
  return numbers, free_from, before, behind or after
end

local function with_marks(numbers, free_from, before, after)
  numbers = numbers and '"slots": [' .. numbers .. '], ' or ''
  return before .. numbers .. (free_from and '"free_from": ' .. free_from .. ', ' or '') .. after
end

-- The member or record with the lowest numbers that no hold has, if it is yet to be numbered; and its
-- numbers.
local function numbered(text, permits)
  local numbers, free_from, before, after = marks_in(text)
  if numbers ~= '' then return text, numbers end
  local taken, free, number = {}, {}, 0
  for _, hold in ipairs(holds_in(redis.call('HGETALL', lock))) do
    for slot in string.gmatch(marks_in(hold.about) or '', '%d+') do taken[tonumber(slot)] = true end
  end
  while #free < permits do
    if not taken[number] then free[#free + 1] = number end
    number = number + 1
  end
  numbers = table.concat(free, ', ')
  return with_marks(numbers, free_from, before, after), numbers
end

-- Read the state of the lock; returns an error, if there is one.
local function load()
  local found = redis.pcall('HMGET', lock, 'mode', 'used', 'update', 'upgrading', 'limit', 'next_end')
  if found.err then return found end
  mode, used, update, upgrading = found[1], tonumber(found[2]) or 0, found[3], found[4]
  next_end, limit = tonumber(found[6]), tonumber(found[5])
  if not limit and limits then
    local kept = redis.pcall('GET', limits)
    if type(kept) == 'table' then return kept end
    limit = tonumber(kept)
  end
  if found[2] or found[6] then
    -- A number that is none would be taken for 0: no hold, or no end.
    local known = mode == 'shared' or mode == 'permits' and tonumber(found[5])
    if known and used > 0 and next_end and (not upgrading or string.find(upgrading, '\n')) then
      limit = limit or 0
      return nil
    end
    return redis.error_reply('UNREADABLE lock fields beside its holds that are not what they should be')
  end
  limit = limit or 0
  local owner = read()
  if owner == nil then return not_a_lock() end
  -- Without these fields it is the hash of another program.
  mode = owner and 'exclusive'
end

-- While the semaphore is idle, its number of permits is kept for a week.
local function remember_limit()
  if limit > 0 then redis.call('SET', limits, limit, 'PX', 604800000) end
end

-- Make the hash last until a hold has ended; a while longer if that must be confirmed, so that the
-- next request sees that it was not.
local function keep(ends, offered)
  local ms = ends - now_ms + (offered and confirm_within or 0)
  if redis.call('PTTL', lock) >= ms then return 1 end
  return redis.pcall('PEXPIRE', lock, text(ms))
end

-- Keep the permits of a hold taken for a number of ms from now on, whatever becomes of it; *aligned*
-- ends that with a multiple of these on the clock. Repeated, it keeps the first time.
local function keep_permits(owner, ms, aligned)
  local numbers, free_from, before, after = marks_in(redis.call('HGET', lock, 'about:' .. owner) or '')
  if free_from or not before then return end
  -- A millisecond more, as in keep_taken.lua.
  local ends = now_ms + ms + 1 - (aligned and now_ms % ms or 0)
  free_from = string.format('%.3f', ends / 1000)
  redis.call('HSET', lock, 'about:' .. owner, with_marks(numbers, free_from, before, after))
  if tonumber(string.match(redis.call('HGET', lock, owner), '^%d+')) < ends then
    redis.call('HSET', lock, owner, text(ends))
    keep(ends, false)
  end
end

local function remove(owner, permits)
  redis.call('HDEL', lock, owner, 'about:' .. owner)
  used = used - permits
  if mode == 'exclusive' or used <= 0 then
    if mode == 'permits' and limits then remember_limit() end
    redis.call('DEL', lock)
    mode, used, update, upgrading, next_end = false, 0, false, false, nil
    return
  end
  if update == owner then
    redis.call('HDEL', lock, 'update', 'upgrading')
    update, upgrading = false, false
  end
  redis.call('HSET', lock, 'used', used)
end

-- Remove the holds that have ended; returns an error, if there is one.
local function collect()
  if not next_end or now_ms < next_end then return nil end
  local first, last, lapsed = nil, nil, false
  local holds = holds_in(redis.call('HGETALL', lock))
  for _, hold in ipairs(holds) do
    local _, claim = in_record(hold.about)
    if not (hold.ends and claim) then
      return redis.error_reply('UNREADABLE lock a hold of ' .. hold.owner)
    end
    hold.permits = claim.permits
  end
  for _, hold in ipairs(holds) do
    if hold.ends <= now_ms then
      remove(hold.owner, hold.permits)
      lapsed = lapsed or hold.offered
    else
      first = math.min(first or hold.ends, hold.ends)
      if not last or hold.ends > last.ends then last = hold end
    end
  end
  if first then
    next_end = first
    redis.call('HSET', lock, 'next_end', text(first))
    redis.call('PEXPIRE', lock, text(last.ends - now_ms + (last.offered and confirm_within or 0)))
  end
  if lapsed then recall('') end
end

-- Whether a claim can be granted beside the holds, and the claims that stay ahead of it.
local function fits(claim, ahead)
  if claim.kind == 'exclusive' then return not mode and not ahead.any end
  if claim.kind == 'permits' then
    if mode and mode ~= 'permits' or ahead.any then return false end
    return used + claim.permits <= limit
  end
  if mode and mode ~= 'shared' or upgrading or ahead.closed then return false end
  return claim.kind == 'shared' or not update and not ahead.update
end

-- Write a hold that lasts a number of ms; returns an error, if there is one.
local function write(claim, token, now, lease, offered)
  local member, owner = claim.member, claim.owner
  if claim.kind == 'exclusive' then
    mode = 'exclusive'
    -- include hold.lua
    if offered then redis.call('SET', handoff, 'offered\n' .. owner, 'PX', lease + 1000) end
    return nil
  end
  if not mode then
    mode, used, next_end = claim.kind == 'permits' and 'permits' or 'shared', 0, nil
  end
  if claim.kind == 'permits' then member, claim.slots = numbered(member, claim.permits) end
  local ends = now_ms + lease
  used, next_end = used + claim.permits, math.min(next_end or ends, ends)
  local fields = {
    owner, text(ends) .. (offered and ' offered' or ''),
    'about:' .. owner, token .. '\neither\n' .. text(now) .. '\n' .. member,
    'mode', mode, 'used', used, 'next_end', text(next_end),
  }
  if mode == 'permits' then
    fields[#fields + 1], fields[#fields + 2] = 'limit', limit
  elseif claim.kind == 'update' then
    update = owner
    fields[#fields + 1], fields[#fields + 2] = 'update', owner
  end
  redis.call('HSET', lock, unpack(fields))
  local done = keep(ends, offered)
  if done ~= 1 then
    -- A user without the right to it must not create a lock that never expires.
    remove(owner, claim.permits)
    return done
  end
end

-- The record of a hold that has another mode now, and perhaps another token.
local function converted(about, kind, step, token)
  local before, grant, ms, tokens, permits, rest =
    string.match(about, '^(%d+)\n(%a+\n%d+\n[^\n]*\n[^\n]*\n)(%d+) ?(%d*) ?%a* ?(%d*)[^\n]*(\n.*)$')
  local lease_fields = {ms, tokens == '' and 1 or tokens, kind, permits == '' and 1 or permits, 0, step}
  return (token or before) .. '\n' .. grant .. table.concat(lease_fields, ' ') .. rest
end

local function step_of(about)
  return tonumber(string.match(about, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]* (%d+)\n'))
end

-- The last reader has released: the upgrade is complete. Returns an error if no token can be drawn,
-- or the hold cannot be read.
local function complete(me)
  local owner, address = string.match(upgrading, '^([^\n]*)\n(.*)$')
  local about = redis.call('HGET', lock, 'about:' .. owner) or ''
  local ends = string.match(redis.call('HGET', lock, owner) or '', '^%d+')
  local _, hold = in_record(about)
  if not (ends and hold and about ~= '') then
    return redis.error_reply('UNREADABLE lock a hold of ' .. owner)
  end
  local token, _, _, wrong = draw(1)
  if wrong then
    -- It asks again, and is told.
    if owner ~= me then tell(channels .. address, owner) end
    return wrong
  end
  about = converted(about, 'exclusive', step_of(about), token)
  redis.call('HDEL', lock, 'used', 'update', 'upgrading', 'next_end')
  redis.call('HSET', lock, owner, 1, 'about:' .. owner, about, 'mode', 'exclusive')
  redis.call('PEXPIRE', lock, text(ends - now_ms))
  mode, used, update, upgrading, next_end = 'exclusive', 0, false, false, nil
  if owner ~= me then tell(channels .. address, owner) end
end

local function has_subscriber(claim)
  local count = verb == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  return redis.call('PUBSUB', count, channels .. claim.address)[2] > 0
end

-- Complete an upgrade whose hold is the only one, and grant each claim that fits. Returns what stays
-- in the queue: any claim; an update; a closed one, behind which nothing is granted; or whether the
-- lock is left to others. A claim without a subscriber is removed, at the latest when others wait
-- for it.
local function promote(me, may)
  local ahead, head, granted = {}, nil, false
  if upgrading and used == 1 then ahead.wrong = complete(me) end
  if mode == 'exclusive' or upgrading then return ahead end
  local state = handoff_state()
  ahead.left_to_others = state == 'left'
  while not ahead.left_to_others do
    local position = ahead.any or 0
    local found = redis.pcall('ZRANGE', queue, position, position)
    if found.err then
      ahead.wrong = found
      return ahead
    end
    local member = found[1]
    if not member then break end
    local claim = claim_of(member)
    if not claim then
      ahead.wrong = redis.error_reply('UNREADABLE queue a member that is no claim')
      return ahead
    end
    if claim.kind == 'permits' and not limits then
      wake(member)
      ahead.any, ahead.closed = position + 1, true
      break
    end
    local asks = claim.owner == me
    if fits(claim, ahead) then
      local token, now, before, wrong = draw(claim.tokens)
      if wrong then
        -- The waiter asks, and is told.
        if not asks then wake(member) end
      elseif asks then
        mine = claim
        redis.call('ZREM', queue, member)
        wrong = write(claim, token, now, claim.lease, false)
        mine.token = token
      elseif may and not mode and leave_to_others(before, now, redis.call('ZRANGE', queue, 0, 1)) then
        ahead.left_to_others = true
      else
        local lease = math.min(claim.lease, confirm_within)
        redis.call('ZREM', queue, member)
        -- The message contains the grant, so the waiter need not ask for it, but for its numbers.
        local news = claim.owner
        if not marks_in(member) then news = news .. '\n' .. token .. '\n' .. text(lease) end
        if tell(channels .. claim.address, news) > 0 then
          if state ~= '' and not granted then redis.call('DEL', handoff) end
          granted = true
          wrong = write(claim, token, now, lease, true)
        end
      end
      if wrong then
        ahead.wrong = wrong
        return ahead
      end
      if mode == 'exclusive' then break end
    else
      local closed = claim.kind == 'exclusive' or claim.kind == 'permits'
      if closed and not asks and not has_subscriber(claim) then
        redis.call('ZREM', queue, member)
      else
        head, ahead.any = head or member, position + 1
        ahead.update = ahead.update or claim.kind == 'update'
        ahead.closed = closed
        if closed then break end
      end
    end
  end
  -- The first waiter must look again when the new holds end.
  if granted and head then wake(head) end
  return ahead
end

-- Whether the lock is in use as a semaphore; nil if it is not in use.
local function is_semaphore()
  if mode then return mode == 'permits' end
  local head = redis.pcall('ZRANGE', queue, 0, 0)[1]
  local claim = head and claim_of(head)
  if claim then return claim.kind == 'permits' end
end

-- Grant the claim, confirm its grant, or enter the queue. The reply is that of acquire.lua.
local function acquire(claim, wait, ticket)
  local wrong = load()
  if wrong then return wrong end
  if redis.call('EXISTS', KEYS[5]) == 1 then return {-1} end
  wrong = collect()
  if wrong then return wrong end
  local owner, ends = claim.owner, mode and redis.call('HGET', lock, claim.owner)
  if ends then
    local token, hold = in_record(redis.call('HGET', lock, 'about:' .. owner) or '')
    local ours = now_ms + claim.lease
    ends = tonumber(string.match(ends, '^%d+'))
    if not (ends and hold) then return redis.error_reply('UNREADABLE lock a hold of ' .. owner) end
    if mode ~= 'exclusive' then
      ours = math.max(ours, ends)
      redis.call('HSET', lock, owner, text(ours))
    else
      redis.call('DEL', handoff)
    end
    keep(ours, false)
    if hold.kind ~= 'permits' then return {1, token} end
    -- An earlier version of this library may have granted it.
    local about, before = nil, redis.call('HGET', lock, 'about:' .. owner)
    about, hold.slots = numbered(before, hold.permits)
    if about ~= before then redis.call('HSET', lock, 'about:' .. owner, about) end
    return {1, token, hold.slots}
  end
  local offered = not mode and string.match(handoff_state(), '^offered\n(.*)')
  -- A hold that was released may never have been confirmed. Without waiters nothing is lost.
  if offered and client_of(offered) ~= client_of(owner) and redis.call('EXISTS', queue) == 1 then
    recall(claim.member)
  end
  local ahead = promote(owner, false)
  if ahead.wrong then return ahead.wrong end
  if mine then return {1, mine.token, mine.slots} end

  local semaphore = is_semaphore()
  if semaphore ~= nil and semaphore ~= (claim.kind == 'permits') then
    redis.call('ZREM', queue, claim.member)
    return {-2, semaphore and limit or -1}
  elseif claim.kind == 'permits' then
    -- A claim with a ticket was queued before, perhaps before the limit was changed.
    if semaphore == nil and (ticket == '' or limit == 0) then
      limit = claim.limit > 0 and claim.limit or limit
      remember_limit()
    end
    local agrees = claim.limit == 0 or claim.limit == limit
    agrees = agrees or ticket ~= '' or redis.call('ZSCORE', queue, claim.member)
    if not agrees or claim.permits > limit then
      redis.call('ZREM', queue, claim.member)
      return {-2, limit}
    end
  end
  if not ahead.left_to_others and fits(claim, ahead) then
    local token, now, _, unusable = draw(claim.tokens)
    if not (unusable or mode) then
      -- include add_to_index.lua
    end
    return unusable or write(claim, token, now, claim.lease, false) or {1, token, claim.slots}
  end

  local recheck_ms, state = recheck, handoff_state()
  if ahead.left_to_others or state == 'left' then
    recheck_ms = redis.call('PTTL', handoff)
  elseif fits(claim, {}) then
    -- Only claims are in its way. Each must ask from time to time: a process may be stopped.
    local since = tonumber(string.match(state, '^kept out\n(%d+)'))
    if since and now_ms - since > 5 * recheck then
      recall(claim.member)
      recheck_ms = 100
    elseif state == '' then
      redis.call('SET', handoff, 'kept out\n' .. text(now_ms), 'PX', 60000)
    end
  end
  local holds = mode == 'exclusive' and {} or holds_in(redis.call('HGETALL', lock))
  local oldest, least = {owner = '', about = ''}, nil
  for _, hold in ipairs(holds) do
    local token = tonumber((in_record(hold.about)))
    if not hold.ends then return redis.error_reply('UNREADABLE lock a hold of ' .. hold.owner) end
    if not least or token < least then oldest, least = hold, token end
    recheck_ms = math.min(recheck_ms, hold.ends - now_ms)
  end
  if mode == 'exclusive' then
    oldest.owner, oldest.about = read()
    recheck_ms = math.min(recheck_ms, redis.call('PTTL', lock))
    revoke(oldest.about)
  end
  local rank = -1
  if wait then
    local last = redis.pcall('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
    if last.err then return last end
    rank, ticket = enqueue(claim.member, ticket, last)
  end
  return {0, recheck_ms, rank, ticket, oldest.owner, oldest.about, math.max(1, #holds)}
end

-- Promote after a hold has ended, or a claim has left the queue.
local function promote_waiters(may)
  if collect() then return end
  promote('', may)
  -- Only clients of Redisson listen, and a user may lack the right to publish.
  if not mode and redis.call('EXISTS', queue) == 0 then tell(freed, '0') end
end
