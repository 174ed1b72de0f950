-- A message whose redelivery is due, or one that a sender took and never came back for.
--
-- KEYS  1 stream   2 sorted set of redeliveries: score = due, ms
-- ARGV  1 group   2 consumer   3 visibility: a message taken longer ago than this (ms) is free again
-- Reply {} or {id, n}, now in the consumer's hands.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms, 'LIMIT', 0, 1)
if due[1] then
    redis.call('ZREM', KEYS[2], due[1])
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, due[1])
    if claimed[1] then
        return { claimed[1][1], claimed[1][2][2] }
    end
end

local left = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], '0', 'COUNT', 1)[2][1]
-- One that waits for its redelivery is pending too, and nobody has forgotten it.
if left and not redis.call('ZSCORE', KEYS[2], left[1]) then
    return { left[1], left[2][2] }
end
return {}
