-- The owner of the lock and the record of its hold, '' where another program holds it; false if it
-- is free; nil if the key is not a lock, or the record beside it no record. The owner is a field of a
-- hash, as in Redisson, which may have fields beside it; or a string, as in redis-py's lock. A "vote",
-- which is the part of one server in a Redlock, is such a string, too. Also returns the mode, and all
-- fields of a hash.
local FIELDS = {
  mode = 1, update = 1, upgrading = 1, used = 1, limit = 1, next_end = 1, free_from = 1,
}
local OWNER = '^[%w.]*%-[%w.]*%-[%w.]*%-[%w.]*%-[%w.]*:'

local function read()
  if form ~= 'hash' then
    local owner = redis.pcall('GET', lock)
    if type(owner) == 'table' then return nil end
    local about = owner and redis.pcall('GET', record) or ''
    if type(about) == 'table' then return nil end
    return owner, about
  end
  local fields = redis.pcall('HGETALL', lock)
  if fields.err then return nil end
  local owner, about, mode = false, {}, nil
  for i = 1, #fields, 2 do
    local field = fields[i]
    if string.find(field, OWNER) then
      owner = owner or field
    elseif string.sub(field, 1, 6) == 'about:' then
      about[string.sub(field, 7)] = fields[i + 1]
    elseif field == 'mode' then
      mode = fields[i + 1]
    elseif not FIELDS[field] then
      return nil
    end
  end
  if #fields > 0 and not owner then return nil end
  return owner, about[owner] or '', mode, fields
end

-- The holds of a lock that has several (see holds.lua). One whose end is no number has none.
local function holds_in(fields)
  local found, about = {}, {}
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if string.sub(field, 1, 6) == 'about:' then
      about[string.sub(field, 7)] = value
    elseif string.find(field, OWNER) then
      local ends, offered = string.match(value, '^(%d+)( ?)')
      found[#found + 1] = {owner = field, ends = tonumber(ends), offered = offered ~= ''}
    end
  end
  for _, hold in ipairs(found) do hold.about = about[hold.owner] or '' end
  return found
end

local function not_a_lock()
  local kind = redis.pcall('TYPE', lock).ok
  -- Then it is the record that has another type.
  if form ~= 'hash' and kind == 'string' then return redis.error_reply('WRONGTYPE of the record') end
  return redis.error_reply('NOTALOCK ' .. (kind or 'value'))
end
