-- Add the lock to the index of active names. That it is listed is not worth the failure of a grant.
redis.pcall('ZADD', index, string.format('%.0f', now), lock)
