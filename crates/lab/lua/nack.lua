-- Gives a message back: it stays pending until it is due.
--
-- KEYS  1 sorted set of redeliveries: score = due, ms
-- ARGV  1 id   2 delay, ms
-- Reply 1

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now_ms + ARGV[2], ARGV[1])
return 1
