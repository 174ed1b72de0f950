-- An exact log of the last second: as many as the contract says, by Redis' clock.
--
-- KEYS  1 sorted set: score = when it was admitted, µs
-- ARGV  1 limit   2 window, µs   3 a name for this request
-- Reply µs until there may be room, 0 = admitted

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local limit, window_us = tonumber(ARGV[1]), tonumber(ARGV[2])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_us - window_us))
if redis.call('ZCARD', KEYS[1]) < limit then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now_us), ARGV[3])
    redis.call('PEXPIRE', KEYS[1], math.ceil(window_us / 1000))
    return 0
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return math.max(1, math.ceil(oldest[2] + window_us - now_us))
