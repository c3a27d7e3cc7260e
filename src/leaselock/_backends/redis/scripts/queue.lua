-- The one way in which a lock is granted to those who wait: to one exclusive hold, to readers beside an
-- update, or to holders of permits.
--
-- A record that another program has written, or that is damaged, is answered by the error UNREADABLE:
-- nothing is granted then, and nothing of it is removed.

-- --- messages --------------------------------------------------------------------------------------

-- Have a waiter ask again.
function state.wake(member)
  local owner, address = string.match(member, '^([^\n]*)\n([^\n]*)\n')
  if owner then state.tell(state.channels .. address, owner) end
end

function state.subscribers(...)
  local count = state.verb == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  return redis.pcall('PUBSUB', count, ...)
end

-- --- records ---------------------------------------------------------------------------------------

-- A claim, as a member of the queue has it; nil if it is none.
function state.claim_of(member)
  local owner, address, ms, kind, permits, wanted =
    string.match(member, '^([^\n]*)\n([^\n]*)\n(%d+) ?%d* ?(%a*) ?(%d*) ?(%d*)[^\n]*\n')
  if not owner then return nil end
  if kind == '' or kind == 'cached' then kind = 'exclusive' end
  return {
    member = member, owner = owner, address = address, lease = tonumber(ms), kind = kind,
    permits = tonumber(permits) or 1, limit = tonumber(wanted) or 0,
  }
end

-- What marks.py notes at the beginning of the metadata of a member or of the record of a hold: the
-- numbers of its permits, nil if they are not numbered; and until when the permits stay taken, in
-- seconds. Also returns the text before the marks and after them; nil if there is no metadata.
function state.marks_in(about)
  local before, after = string.match(about, '^(.*\n{)([^\n]*)$')
  if not before then return nil end
  local numbers, rest = string.match(after, '^"slots": %[([%d, ]*)%], (.*)$')
  after = rest or after
  local free_from, behind = string.match(after, '^"free_from": (%d+%.%d+), (.*)$')
  return numbers, free_from, before, behind or after
end

-- --- the lock --------------------------------------------------------------------------------------

-- Write a hold that lasts a number of ms; returns an error, if there is one.
function state.write(claim, token, lease, offered)
  if claim.kind ~= 'exclusive' then return state.write_beside(claim, token, lease, offered) end
  state.mode, state.holds = 'exclusive', nil
  local wrong = write_only(claim.owner, token, claim.member, lease, state.clock())
  if offered and not wrong then
    redis.call('SET', state.handoff, 'offered\n' .. claim.owner, 'PX', lease + 1000)
  end
  return wrong
end

-- --- the hand-off ----------------------------------------------------------------------------------

function state.read_handoff()
  if not state.last_handoff then
    local found = redis.pcall('GET', state.handoff)
    state.last_handoff = type(found) == 'string' and found or ''
  end
  return state.last_handoff
end

-- Leave the lock free for a while, to those who are not in the queue.
function state.leave_free(ms)
  redis.call('SET', state.handoff, 'left', 'PX', ms)
  state.last_handoff = 'left'
end

-- The waiters of other libraries are not in our queue, and while the queue is not empty they would
-- never get the lock. So the first contended release in each tenth of a second asks whether
-- Redisson's channel has more subscribers than ours, to which each of ours subscribes as well. Of
-- programs that poll nothing can be known: for them it is the first one in each second. For a vote,
-- whose last token says when its claim was made, it is the last tenth of each second. The lock is
-- left free for as long as they need to take it; meanwhile none of our waiters is granted it, and the
-- first two of them know when that ends.
function state.leave_to_others(before, heads)
  local interval, ms = 1000000, 100
  if form == 'hash' then interval, ms = 100000, 20 end
  local now = state.clock()
  if form == 'vote' then
    local rest = math.ceil((interval - now % interval) / 1000)
    if rest > ms then return false end
    ms = rest
  else
    before = tonumber(before)
    if not before or math.floor(now / interval) == math.floor(before / interval) then return false end
  end
  if form == 'hash' then
    local found = state.subscribers(state.freed, state.channels)
    if (found[2] or 0) <= (found[4] or 0) then return false end
    state.tell(state.freed, '0')
  end
  state.leave_free(ms)
  for _, member in ipairs(heads) do state.wake(member) end
  return true
end

-- --- granting --------------------------------------------------------------------------------------

-- Whether a claim can be granted beside the holds, and the claims that stay ahead of it.
function state.fits(claim, ahead)
  if claim.kind == 'exclusive' then return not state.mode and not ahead.passed end
  if claim.kind == 'permits' then
    if state.mode and state.mode ~= 'permits' or ahead.passed then return false end
    return state.used + claim.permits <= state.limit
  end
  if state.mode and state.mode ~= 'shared' or state.upgrading or ahead.closed then return false end
  return claim.kind == 'shared' or not state.update and not ahead.update
end

-- Define what only several holds need: that takes time, so not before there are any.
function state.several()
  if state.keep then return end
  -- include several.lua
end

-- Complete an upgrade whose hold is the only one, and grant each claim that fits. A claim without a
-- subscriber is removed, at the latest when others wait for it. Each turn looks at the claim at the
-- position `passed`: it is granted to *me*, handed to its channel, removed because nobody listens, or
-- passed over; only the last moves on. *me* asks, and is told by the reply.
-- *heads* are the first two waiters, where the caller knows them. Returns what stays in the queue:
--   passed          the position behind the last claim that was passed over; nil if there is none
--   update          one of these is an update
--   closed          behind the last one of these nothing is granted
--   none            the queue is empty
--   left_to_others  nothing is granted now: the lock is left to others, as it *may* be
--   wrong           an error; claims before it may have been granted
function state.promote(me, may, heads)
  local ahead, first, granted = {}, nil, false
  if state.upgrading and state.used == 1 then ahead.wrong = state.complete(me) end
  if state.mode == 'exclusive' or state.upgrading then return ahead end
  ahead.left_to_others = state.read_handoff() == 'left'
  while not ahead.left_to_others do
    local position = ahead.passed or 0
    heads = heads or redis.pcall('ZRANGE', state.queue, position, position + 1)
    if heads.err then
      ahead.wrong = heads
      return ahead
    end
    local member, second = heads[1], heads[2]
    if not member then
      ahead.none = position == 0
      break
    end
    local claim = state.claim_of(member)
    if not claim then
      ahead.wrong = redis.error_reply('UNREADABLE queue a member that is no claim')
      return ahead
    end
    local asks, wrong = claim.owner == me, nil
    if claim.kind ~= 'exclusive' then state.several() end
    if claim.kind == 'permits' then wrong = state.load_limit() end
    if not wrong and state.fits(claim, ahead) then
      local token, before
      token, before, wrong = draw(member, state.clock())
      if wrong then
        -- The waiter asks, and is told.
        if not asks then state.wake(member) end
      elseif asks then
        state.mine = claim
        redis.call('ZREM', state.queue, member)
        state.mine.token, wrong = token, state.write(claim, token, claim.lease, false)
      elseif may and not state.mode and state.leave_to_others(before, heads) then
        ahead.left_to_others = true
      else
        local lease = math.min(claim.lease, state.confirm_within)
        redis.call('ZREM', state.queue, member)
        -- The message contains the grant, so the waiter need not ask for it, but for its numbers.
        local news = claim.owner
        if claim.kind ~= 'permits' or not state.marks_in(member) then
          news = news .. '\n' .. token .. '\n' .. state.text(lease)
        end
        if state.tell(state.channels .. claim.address, news) > 0 then
          local only = claim.kind == 'exclusive'
          if state.last_handoff ~= '' and not (granted or only) then redis.call('DEL', state.handoff) end
          granted = true
          wrong = state.write(claim, token, lease, true)
          -- The next waiter must ask before such a short grant has ended.
          if only and lease < state.recheck then first = second end
        end
      end
      if state.mode == 'exclusive' then break end
    elseif not wrong then
      local closed = claim.kind == 'exclusive' or claim.kind == 'permits'
      local heard = closed and not asks and state.subscribers(state.channels .. claim.address)
      if heard and heard.err then
        wrong = heard
      elseif heard and heard[2] == 0 then
        redis.call('ZREM', state.queue, member)
      else
        first, ahead.passed = first or member, position + 1
        ahead.update = ahead.update or claim.kind == 'update'
        ahead.closed = closed
        if closed then break end
      end
    end
    if wrong then
      ahead.wrong = wrong
      return ahead
    end
    heads = nil
  end
  -- The first waiter must look again when the new holds end.
  if granted and first then state.wake(first) end
  return ahead
end

-- Promote after a hold has ended, or a claim has left the queue.
function state.promote_waiters(may, heads)
  local none = heads and not heads[1]
  if state.upgrading or not none then
    if state.next_end and state.remove_ended() then return end
    local ahead = state.promote('', may, heads)
    none = ahead.none or ahead.wrong
    -- The next one may not know that the lock is free.
    local head = ahead.left_to_others and not may and redis.call('ZRANGE', state.queue, 0, 0)[1]
    if head then state.wake(head) end
  end
  -- Only clients of Redisson listen, and a user may lack the right to publish.
  if form == 'hash' and not state.mode and none then state.tell(state.freed, '0') end
end
