-- Who may serve what: every kind of lane against every registered worker, whichever comes first.

local function matches(worker, kind)
  local function has(list, wanted)
    for _, item in ipairs(list) do
      if item == wanted then return true end
    end
    return false
  end
  return has(worker.tasks, kind.task) and has(worker.tags, kind.tag) and has(worker.constraintTags, kind.constraintTag)
end

local function with_item(text, item)
  return text and text ~= '' and text .. ',' .. item or item
end

local function add_to_list(worker, field, number)
  local key = prefix .. 'worker:' .. worker
  redis.call('HSET', key, field, with_item(redis.call('HGET', key, field), number))
end

--- The worker serves this kind from now on.
local function connect(worker, number, kind)
  redis.call('SADD', prefix .. 'workers-of:' .. number, worker)
  if kind.isPlain then add_to_list(worker, 'plain', number) end
  if kind.hasLimits then add_to_list(worker, 'limited', number) end
end

local function add_kind(number, kind)
  local text = redis.call('HGET', prefix .. 'kinds', number)
  if text then
    -- Its first lane with a key or a limit may come late.
    local known = cjson.decode(text)
    if known.hasLimits or not kind.hasLimits then return end
    known.hasLimits = true
    redis.call('HSET', prefix .. 'kinds', number, cjson.encode(known))
    for _, worker in ipairs(eligible_for(number)) do add_to_list(worker, 'limited', number) end
  else
    redis.call('HSET', prefix .. 'kinds', number, cjson.encode(kind))
    local registered = redis.call('HGETALL', prefix .. 'workers')
    for at = 1, #registered, 2 do
      if matches(cjson.decode(registered[at + 1]), kind) then connect(registered[at], number, kind) end
    end
    eligible[number] = nil
  end
  workers, open_for = {}, {}
end

--- The worker's queue is emptied, and it serves nothing any more. Returns the jobs of which it held the last copy.
local function disconnect(worker)
  local queue = prefix .. 'queue:' .. worker
  local alone = {}
  for _, id in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if drop_holder(id, worker) == 0 then alone[#alone + 1] = id end
  end
  local known = redis.call('HMGET', prefix .. 'worker:' .. worker, 'plain', 'limited')
  for _, kinds in ipairs({ known[1] or '', known[2] or '' }) do
    each(kinds, function(number)
      redis.call('SREM', prefix .. 'workers-of:' .. number, worker)
      eligible[number] = nil
    end)
  end
  redis.call('DEL', queue, prefix .. 'worker:' .. worker)
  redis.call('HDEL', prefix .. 'workers', worker)
  redis.call('ZREM', prefix .. 'idle', worker)
  redis.call('ZREM', prefix .. 'rung', worker)
  redis.call('ZREM', open_key, worker)
  workers[worker], open_for = nil, {}
  return alone
end

--- These jobs lost their last copy: others get one, or they wait in their lane.
local function offer_again(ids)
  for _, id in ipairs(ids) do
    local number, score = string.match(redis.call('HGET', jobs_key, id) or '', '^(%S+) (%S+)')
    local lane = number and lane_of(number)
    if lane then
      copy(id, lane.kind, score)
      ring(lane.kind)
    end
  end
end
