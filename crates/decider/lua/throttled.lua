-- The provider throttled us: stops everyone for a while, on Redis' clock. The same function as
-- limits::decision::penalise. Lengthens, never shortens; the same report counts once.
--
-- KEYS[1]   hash of the limit, weir:{<limit>}; here only its field penalty_until, us since the epoch
-- KEYS[2]   marks the report as known, weir:{<limit>}:report:<id>
-- ARGV[1]   pause from now, us
-- ARGV[2]   longest pause that can be legal, us
-- ARGV[3]   how long the report is remembered, ms
--
-- reply     what is left of the stop, us
--
-- Never tostring() or .. a number of us: see decide.lua.

-- As in decide.lua, ms.
local KEEP = 60000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local pause = tonumber(ARGV[1])
local max_pause = tonumber(ARGV[2])

if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[3]) then
  pause = 0
end

local kept = tonumber(redis.call('HGET', KEYS[1], 'penalty_until')) or 0
local penalty_until = math.min(kept, now + max_pause)
if pause > 0 then
  penalty_until = math.max(penalty_until, now + math.min(pause, max_pause))
end
local left = math.max(penalty_until - now, 0)
if penalty_until ~= kept then
  redis.call('HSET', KEYS[1], 'penalty_until', string.format('%.0f', penalty_until))
  -- The key holds more than the penalty: never shorten what is left of its time.
  local keep = math.ceil(left / 1000) + KEEP
  if redis.call('PTTL', KEYS[1]) < keep then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))
  end
end
return left
