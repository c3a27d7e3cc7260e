-- Everything, for the scripts that are not the most frequent ones.
-- include keys.lua

-- include grant.lua

-- include lock.lua

-- include state.lua

-- include queue.lua

state.several()
