-- Reads a limit as it stands, without changing anything. A script, so that both are of one instant
-- and a cluster sends it on like any other.
--
-- KEYS[1]   hash of the limit, weir:{<limit>}
-- ARGV      fields of it
--
-- reply     seconds and microseconds of Redis' clock, then each field's text, '' when it is missing

local reply = redis.call('TIME')
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV))) do
  reply[i + 2] = value or ''
end
return reply
