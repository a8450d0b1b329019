-- Copies of ready jobs in the queues of workers, up to their bounds.

local function lower_bound(worker, score, id)
  if is_before_bound(tonumber(score), id, worker) then set_worker_bound(worker, score, id) end
end

local function drop_holder(id, worker)
  local kept = {}
  each(redis.call('HGET', held_key, id), function(holder)
    if holder ~= worker then kept[#kept + 1] = holder end
  end)
  if #kept == 0 then
    redis.call('HDEL', held_key, id)
  else
    redis.call('HSET', held_key, id, table.concat(kept, ','))
  end
  return #kept
end

--- Nobody holds a copy: no queue that should hold one may count as complete beyond this place.
local function nobody_holds(kind, score, id)
  for _, worker in ipairs(eligible_for(kind)) do lower_bound(worker_of(worker), score, id) end
end

local function push_out_tail(worker)
  write_gathered()
  local tail = redis.call('ZRANGE', worker.queue, -1, -1, 'WITHSCORES')
  redis.call('ZREM', worker.queue, tail[1])
  worker.size = worker.size - 1
  lower_bound(worker, tail[2], tail[1])
  if drop_holder(tail[1], worker.id) == 0 and width > 0 then
    local lane = string.match(redis.call('HGET', jobs_key, tail[1]) or '', '^%S+')
    local known = lane and lane_of(lane)
    if known then nobody_holds(known.kind, tail[2], tail[1]) end
  end
end

local function has_room(worker, score, id)
  if worker.size < depth then return true end
  write_gathered()
  local tail = redis.call('ZRANGE', worker.queue, -1, -1, 'WITHSCORES')
  if tail[1] and before(score, id, tail[2], tail[1]) then return true end
  lower_bound(worker, score, id)
  return false
end

local is_seeded = false

--- The first `width` of the workers, by strategy.
local function choose(found)
  if strategy == 'round-robin' then
    local turn = redis.call('HINCRBY', root, 'turn', 1)
    local turned = {}
    for at = 1, #found do turned[at] = found[(turn + at - 2) % #found + 1] end
    found = turned
  elseif strategy == 'random' then
    if not is_seeded then
      -- Where integers have 32 bits, all larger seeds are the same.
      math.randomseed(now() % 2147483647)
      is_seeded = true
    end
    for at = #found, 2, -1 do
      local other = math.random(at)
      found[at], found[other] = found[other], found[at]
    end
  else
    table.sort(found, function(a, b)
      local a_load, b_load = a.size + a.running, b.size + b.running
      if a_load ~= b_load then return a_load < b_load end
      return tonumber(a.id) < tonumber(b.id)
    end)
  end
  local chosen = {}
  for at = 1, math.min(width, #found) do chosen[at] = found[at] end
  return chosen
end

local with_room = {}

--- Who may serve a kind and has a queue for copies at all: not who works through its lanes.
local function with_room_for(kind)
  local found = with_room[kind]
  if not found then
    found = {}
    for _, id in ipairs(eligible_for(kind)) do
      local worker = worker_of(id)
      if worker.bound_value ~= -1 then found[#found + 1] = worker end
    end
    with_room[kind] = found
  end
  return found
end

--- Copy a job into the queues of workers that may run it: of all that have room (width 0), or of `width` of them.
local function copy(id, kind, score)
  local candidates = with_room_for(kind)
  if not candidates[1] then return end
  local found, value = {}, tonumber(score)
  for _, worker in ipairs(candidates) do
    if is_before_bound(value, id, worker) and has_room(worker, score, id) then found[#found + 1] = worker end
  end
  if not found[1] then return end
  if width > 0 then found = choose(found) end
  local holders = {}
  for at, worker in ipairs(found) do
    gather('ZADD', worker.queue, score, id)
    worker.size = worker.size + 1
    holders[at] = worker.id
  end
  gather('HSET', held_key, id, table.concat(holders, ','))
  for _, worker in ipairs(found) do
    if worker.size > depth then push_out_tail(worker) end
  end
end
