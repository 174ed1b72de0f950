-- Decides for one limit: the same function as limits::decision::decide, on Redis' clock.
-- Change both together; one case table and the same random sequences drive them.
--
-- KEYS[1]   hash of the limit, weir:{<limit>}: a TAT per rate (r0, r1, ... of the limit,
--           c:<class>:0, ... of a class) and penalty_until; instants in us since the epoch.
--           A field that is missing counts as 0, long ago.
-- ARGV[1]   longest penalty that can be legal, us
-- ARGV[2]   number of the limit's rates (L)
-- ARGV[3]   number of classes (C)
-- then      C wants, one per class in order of precedence
--           L times: emission interval, tolerance, us
--           C times: name, number of rates, and for each rate: emission interval, tolerance, us
--
-- reply     now, what is left of the penalty, then per class: granted, wait, reason;
--           times in us; reason: 0 none, 1 rate, 2 class_rate, 3 penalty
--
-- Numbers are doubles: exact up to 2^53 us, the year 2255. Never tostring() or .. one of them
-- (1760000000123456 becomes 1.7600000001235e+15).

-- How long a key outlives its last instant: a clock that steps back finds it still there, ms.
local KEEP = 60000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local max_pause = tonumber(ARGV[1])
local limit_rates = tonumber(ARGV[2])
local classes = tonumber(ARGV[3])

local fields, interval, tolerance = {}, {}, {}
local place = 3 + classes
local function read_rate(field)
  local i = #fields + 1
  fields[i] = field
  interval[i] = tonumber(ARGV[place + 1])
  tolerance[i] = tonumber(ARGV[place + 2])
  place = place + 2
end
for i = 1, limit_rates do
  read_rate('r' .. (i - 1))
end
local first, last = {}, {}
for class = 1, classes do
  local name, count = ARGV[place + 1], tonumber(ARGV[place + 2])
  place = place + 2
  first[class] = #fields + 1
  for i = 1, count do
    read_rate('c:' .. name .. ':' .. (i - 1))
  end
  last[class] = #fields
end
local rates = #fields
fields[rates + 1] = 'penalty_until'

-- Settle: what was remembered is pulled back to what can be legal now, and kept so.
local tat = redis.call('HMGET', KEYS[1], unpack(fields))
local changed = {}
for i = 1, rates do
  tat[i] = tonumber(tat[i]) or 0
  local legal = now + tolerance[i] + interval[i]
  if tat[i] > legal then
    tat[i] = legal
    changed[i] = true
  end
end
local penalty_until = tonumber(tat[rates + 1]) or 0
if penalty_until > now + max_pause then
  penalty_until = now + max_pause
  changed[rates + 1] = true
end
tat[rates + 1] = penalty_until
local penalty = math.max(penalty_until - now, 0)

-- Calls visit(place) for every rate that binds the class.
local function binding(class, visit)
  for i = 1, limit_rates do
    visit(i)
  end
  for i = first[class], last[class] do
    visit(i)
  end
end

local granted = {}
for class = 1, classes do
  local n = 0
  if penalty == 0 then
    n = tonumber(ARGV[3 + class])
    binding(class, function(i)
      local free = now + tolerance[i] - math.max(tat[i], now)
      n = math.min(n, free < 0 and 0 or math.floor(free / interval[i]) + 1)
    end)
  end
  if n > 0 then
    binding(class, function(i)
      tat[i] = math.max(tat[i], now) + interval[i] * n
      changed[i] = true
    end)
  end
  granted[class] = n
end

local write, latest = {}, now
for i = 1, rates + 1 do
  if changed[i] then
    write[#write + 1] = fields[i]
    write[#write + 1] = string.format('%.0f', tat[i])
  end
  latest = math.max(latest, tat[i])
end
if #write > 0 then
  redis.call('HSET', KEYS[1], unpack(write))
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((latest - now) / 1000) + KEEP))
end

-- Waits are looked up after everything was charged: they are true for whoever asks next.
local reply = { now, penalty }
for class = 1, classes do
  local wait, reason = 0, 0
  if penalty > 0 then
    wait, reason = penalty, 3
  else
    binding(class, function(i)
      local own = tat[i] - tolerance[i] - now
      if own > wait then
        wait, reason = own, i > limit_rates and 2 or 1
      end
    end)
  end
  reply[#reply + 1] = granted[class]
  reply[#reply + 1] = wait
  reply[#reply + 1] = reason
end
return reply
