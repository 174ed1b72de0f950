-- Decides for one limit: the same function as limits::decision::decide, on Redis' clock.
-- Change both together; one case table and the same random sequences drive them.
--
-- KEYS[1]   hash of the limit, weir:{<limit>}; instants in us since the epoch, a missing field is 0:
--             r0, r1, ...      TAT of each of the limit's rates
--             c:<class>:0, ... TAT of each of a class's rates
--             penalty_until    end of the provider's stop
--             born             when this hash began
--           and where the limit has a leased fallback (limits::members), on its own clock:
--             m:clock, m:unknown_until; m:seen on Redis' clock
--             g:<gateway>      end of its lease
--             s:<gateway>      since when it has been renewed in time
-- ARGV[1]   longest penalty that can be legal, us
-- ARGV[2]   number of the limit's rates (L)
-- ARGV[3]   number of classes (C)
-- ARGV[4]   number of asks (A)
-- ARGV[5..8] lease, forget_after, furthest deadline from now, us; number of gateways; all 0 without
-- then      A times: kind (0 no member, 1 renews, 2 leaves), gateway, deadline, and C wants, one per
--           class in order of precedence
--           L times: emission interval, tolerance, us
--           C times: name, number of rates, and for each rate: emission interval, tolerance, us
--
-- reply     now, what is left of the penalty, born, then per class: granted, wait, reason;
--           times in us; reason: 0 none, 1 rate, 2 class_rate, 3 penalty;
--           then per ask: 0 late, 1 decided, 2 decided and a member
--
-- Numbers are doubles: exact up to 2^53 us, the year 2255. Never tostring() or .. one of them
-- (1760000000123456 becomes 1.7600000001235e+15).

-- How long a key outlives its last instant: a clock that steps back finds it still there, ms.
local KEEP = 60000
-- The same where members are remembered: a quiet month is no loss of memory.
local KEEP_MEMBERS = 30 * 86400000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local max_pause = tonumber(ARGV[1])
local limit_rates = tonumber(ARGV[2])
local classes = tonumber(ARGV[3])
local asks = tonumber(ARGV[4])
local lease = tonumber(ARGV[5])

local kept = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  kept[all[i]] = tonumber(all[i + 1]) or 0
end
local write = {}
local function set(field, value)
  write[#write + 1] = field
  write[#write + 1] = string.format('%.0f', value)
end
local born = kept['born'] or 0
if born == 0 then
  born = now
  set('born', born)
end

-- Members: who holds a lease, and how many of all shares are left for those who ask.
local function ask_at(ask)
  return 8 + (ask - 1) * (3 + classes)
end
local standing = {}
for ask = 1, asks do
  standing[ask] = 1
end
local left, whole = 1, 1 -- left is at least 1: whoever asks has a share of its own
if lease > 0 then
  local forget_after, deadline_max = tonumber(ARGV[6]), tonumber(ARGV[7])
  whole = tonumber(ARGV[8])
  local time, unknown_until = kept['m:clock'] or 0, kept['m:unknown_until'] or 0
  local passed = now - (kept['m:seen'] or 0)
  local is_step = time > 0 and (passed < 0 or passed > lease)
  if time == 0 then
    time = now
    unknown_until = now + lease + forget_after
    set('m:unknown_until', unknown_until)
  elseif not is_step then
    time = time + passed
  end
  set('m:clock', time)
  set('m:seen', now)

  local ends, since = {}, {}
  for field, at in pairs(kept) do
    local gateway = string.match(field, '^g:(.*)$')
    if gateway then
      -- A step, or a silence: every lease is over, and none is nearer to being forgotten.
      at = is_step and math.min(at, time) or at
      if time < at + forget_after then
        ends[gateway], since[gateway] = at, kept['s:' .. gateway] or 0
      end
    end
  end
  local function count(which)
    local n = 0
    for gateway, at in pairs(ends) do
      n = n + (which(gateway, at) and 1 or 0)
    end
    return n
  end
  local function is_held(_, at)
    return time < at
  end

  for ask = 1, asks do
    local place = ask_at(ask)
    local kind, gateway = tonumber(ARGV[place + 1]), ARGV[place + 2]
    local deadline = tonumber(ARGV[place + 3])
    local held = ends[gateway] and time < ends[gateway]
    if kind > 0 then
      if deadline < now or deadline > now + deadline_max then
        standing[ask] = 0
      elseif kind == 2 then
        ends[gateway] = nil
      elseif held or count(is_held) < whole then
        since[gateway] = held and since[gateway] or time
        ends[gateway] = time + lease
        standing[ask] = 2
      end
    end
  end

  local missing = count(function(_, at)
    return time >= at
  end)
  local here = count(function(gateway, at)
    return time < at and since[gateway] + lease <= time
  end)
  local elsewhere = math.max(whole - math.max(here, 1), 0)
  left = whole - (time < unknown_until and elsewhere or math.min(missing, elsewhere))

  for field in pairs(kept) do
    local gateway = string.match(field, '^g:(.*)$')
    if gateway and not ends[gateway] then
      redis.call('HDEL', KEYS[1], field, 's:' .. gateway)
    end
  end
  for gateway, at in pairs(ends) do
    if at ~= kept['g:' .. gateway] or since[gateway] ~= kept['s:' .. gateway] then
      set('g:' .. gateway, at)
      set('s:' .. gateway, since[gateway])
    end
  end
end

local wants = {}
for class = 1, classes do
  wants[class] = 0
  for ask = 1, asks do
    if standing[ask] > 0 then
      wants[class] = wants[class] + tonumber(ARGV[ask_at(ask) + 3 + class])
    end
  end
end

local place = ask_at(asks + 1)
local fields, interval, tolerance = {}, {}, {}
local function read_rate(field)
  local i = #fields + 1
  fields[i] = field
  interval[i] = tonumber(ARGV[place + 1])
  if left < whole then
    interval[i] = math.ceil(interval[i] * whole / left)
  end
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
local tat, changed = {}, {}
for i = 1, rates do
  tat[i] = kept[fields[i]] or 0
  local legal = now + tolerance[i] + interval[i]
  if tat[i] > legal then
    tat[i] = legal
    changed[i] = true
  end
end
local penalty_until = kept['penalty_until'] or 0
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
    n = wants[class]
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

local latest = now
for i = 1, rates + 1 do
  if changed[i] then
    set(fields[i], tat[i])
  end
  latest = math.max(latest, tat[i])
end
if #write > 0 then
  redis.call('HSET', KEYS[1], unpack(write))
  local keep = lease > 0 and KEEP_MEMBERS or KEEP
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((latest - now) / 1000) + keep))
end

-- Waits are looked up after everything was charged: they are true for whoever asks next.
local reply = { now, penalty, born }
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
for ask = 1, asks do
  reply[#reply + 1] = standing[ask]
end
return reply
