-- What has to be brought up to date at the end of a call: heads of lanes under limits, slots, bells, lanes that run low.

local function lane_at_head(head) return lane_of(string.match(head, '%S+$')) end

--- Which lanes under limits have jobs to run, by the places of their best: `heads` of a kind holds `<job> <lane>`, so that it
--- is in exact order, of every lane with jobs whose key has slots.
local function refresh_heads()
  for limit, known in pairs(free_in_heads) do
    local free = free_of(limit)
    if (known > 0) ~= (free > 0) then
      for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'under:' .. limit)) do touched[number] = true end
    end
    free_in_heads[limit] = free
  end
  local gone = {}
  for number in pairs(touched) do
    local lane = lane_of(number)
    if lane and not lane.is_plain then
      local best = redis.call('ZRANGE', lane.home, 0, 0, 'WITHSCORES')
      local head = best[1] and free_of(lane.key_limit) > 0 and best[1]
      local heads = prefix .. 'heads:' .. lane.kind
      if lane.head and lane.head ~= head then
        gone[heads] = gone[heads] or {}
        table.insert(gone[heads], lane.head .. ' ' .. number)
      end
      if head then
        gather('ZADD', heads, best[2], head .. ' ' .. number)
        if lane.head ~= head then redis.call('HSET', lane.facts, 'head', head) end
      elseif lane.head then
        redis.call('HDEL', lane.facts, 'head')
      end
      lane.head = head
    end
  end
  for heads, members in pairs(gone) do bulk('ZREM', heads, members) end
  write_gathered()
end

--- So many slots of a limit are free that were not before: for each at most one worker is woken.
local function ring_for_slots(limit, left)
  if left <= 0 or not idle_worker(1) then return end
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'under:' .. limit)) do
    local lane = lane_of(number)
    if lane and lane.key_limit == limit then
      left = left - ring_limited(lane, math.min(left, size_of(lane)))
    else
      for _, head in ipairs(redis.call('ZRANGE', prefix .. 'heads:' .. number, 0, left - 1)) do
        lane = lane_at_head(head)
        left = left - ring_limited(lane, math.min(left, size_of(lane)))
      end
    end
    if left <= 0 then return end
  end
end

--- Bring up to date what depends on the slots that were given and taken, and on the lanes that were touched.
local function finish()
  write_gathered()
  refresh_heads()
  local changed = {}
  for limit in pairs(free_before) do changed[#changed + 1] = limit end
  for first = 1, #changed, 1000 do
    local last = math.min(first + 999, #changed)
    for at, turn in ipairs(redis.call('HMGET', prefix .. 'turns', unpack(changed, first, last))) do
      local limit = changed[first + at - 1]
      local free = free_of(limit)
      gather('HSET', prefix .. 'slots', limit, free)
      if (free_before[limit] > 0) ~= (free > 0) then redis.call(free > 0 and 'SREM' or 'SADD', full_key, limit) end
      -- Every change gets a number, so that whoever sets the absolute count knows whether it is still the truth.
      gather('HSET', prefix .. 'turns', limit, string.format('%.0f', tonumber(turn or '0') + 1))
    end
  end
  write_gathered()
  for limit, before_call in pairs(free_before) do
    local free = free_of(limit)
    ring_for_slots(limit, math.min(free, free - before_call) - (rung[limit] or 0))
  end
  tell_low()
end
