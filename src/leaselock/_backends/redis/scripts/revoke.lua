-- Notify a client that caches the lock while it does not use it.
local function revoke(about)
  local pattern = '^%d+\n%a+\n%d+\n([^\n]*)\n([^\n]*)\n%d+ %d+ cached\n'
  local who, address = string.match(about, pattern)
  if who then tell(channels .. address, who) end
end
