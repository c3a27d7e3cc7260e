-- Reading a lock. The owner of an exclusive hold is a field of a hash, as in Redisson, which may have
-- fields beside it; or a string, as in redis-py's lock. A "vote", which is the part of one server in a
-- Redlock, is such a string, too. The hash of several holds has for each one: owner -> its end in ms
-- of the server's clock, followed by " offered" until a waiter that was granted it has confirmed;
-- "about:" and the owner -> its record. Besides mode (shared or permits), used (how many holds, or
-- permits), update (the owner of that hold), upgrading (the same and its address, while it waits to
-- become exclusive), limit, and next_end: no hold ends before.
local FIELDS = {
  mode = 1, update = 1, upgrading = 1, used = 1, limit = 1, next_end = 1, free_from = 1,
}
local OWNER = '^[%w.]*%-[%w.]*%-[%w.]*%-[%w.]*%-[%w.]*:'

local function hold_of(owner, value, about)
  local ends, offered = string.match(value or '', '^(%d+)( ?)')
  return {owner = owner, ends = tonumber(ends), offered = offered == ' ', about = about or ''}
end

-- The other fields, and a list of the holds; nil if the key has another type, or the record beside it.
-- "foreign" is among the fields if there is one that no lock has. The record is '' where another
-- program holds the lock.
local function read()
  if form ~= 'hash' then
    local owner = redis.pcall('GET', lock)
    local about = owner and type(owner) ~= 'table' and redis.pcall('GET', record)
    if type(owner) == 'table' or type(about) == 'table' then return nil end
    return {}, owner and {hold_of(owner, nil, about or nil)} or {}
  end
  local fields = redis.pcall('HGETALL', lock)
  if fields.err then return nil end
  local known, holds, about = {}, {}, {}
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if string.find(field, OWNER) then
      holds[#holds + 1] = hold_of(field, value)
    elseif string.sub(field, 1, 6) == 'about:' then
      about[string.sub(field, 7)] = value
    else
      known[FIELDS[field] and field or 'foreign'] = value
    end
  end
  if #fields > 0 and not holds[1] then known.foreign = '' end
  for _, hold in ipairs(holds) do hold.about = about[hold.owner] or '' end
  return known, holds
end

-- The mode by these fields: exclusive, shared, permits, or false without a hold; nil if they are not
-- what they should be. Without "used" and "next_end" it is the only hold, or one of another program.
local function mode_of(known, held)
  local mode, upgrading = known.mode, known.upgrading
  if not (known.used or known.next_end or mode == 'shared' or mode == 'permits') then
    return held and 'exclusive' or false
  end
  local kind = mode == 'shared' or mode == 'permits' and tonumber(known.limit)
  -- A number that is none would be taken for 0: no hold, or no end.
  local used = (tonumber(known.used) or 0) > 0
  if not (kind and used and tonumber(known.next_end)) then return nil end
  if upgrading and not string.find(upgrading, '\n') then return nil end
  return mode
end

local function unreadable(what) return redis.error_reply('UNREADABLE lock ' .. what) end

local BESIDE = 'fields beside its holds that are not what they should be'

local function not_a_lock()
  local kind = redis.pcall('TYPE', lock).ok
  -- Then it is the record that has another type.
  if form ~= 'hash' and kind == 'string' then return redis.error_reply('WRONGTYPE of the record') end
  return redis.error_reply('NOTALOCK ' .. (kind or 'value'))
end
