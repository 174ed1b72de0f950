-- A bucket that paces dispatch, as managed task queues do: a place is reserved, however far ahead.
--
-- KEYS  1 hash: tokens (may be below 0), at (µs)
-- ARGV  1 tokens per second   2 capacity
-- Reply µs until the reserved place, 0 = now

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens, at_us = tonumber(kept[1]) or capacity, tonumber(kept[2]) or now_us

tokens = math.min(capacity, tokens + (now_us - at_us) * rate / 1000000) - 1
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now_us))
redis.call('EXPIRE', KEYS[1], 60)
if tokens >= 0 then
    return 0
end
return math.ceil(-tokens * 1000000 / rate)
