-- GCRA called by every sender itself: what Weir computes, without Weir's place, classes and stops.
-- Written anew: the comparison must not share a mistake with what is compared.
--
-- KEYS  1 theoretical arrival time, µs
-- ARGV  1 emission interval, µs   2 burst
-- Reply µs until the next could pass, 0 = admitted

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local interval_us, burst = tonumber(ARGV[1]), tonumber(ARGV[2])

local tat_us = math.max(now_us, tonumber(redis.call('GET', KEYS[1])) or now_us)
local wait_us = tat_us - (burst - 1) * interval_us - now_us
if wait_us > 0 then
    return math.ceil(wait_us)
end
redis.call('SET', KEYS[1], string.format('%.0f', tat_us + interval_us), 'EX', 60)
return 0
