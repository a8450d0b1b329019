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

local open_for = {}

--- Who may serve a kind and has a queue for copies, by rank.
local function open_workers(kind)
  local list = open_for[kind]
  if not list then
    list = { seen = rank_changes }
    local got = redis.call('ZINTER', 2, open_key, prefix .. 'workers-of:' .. kind, 'WEIGHTS', 1, 0, 'WITHSCORES')
    for at = 1, #got, 2 do
      local id = got[at]
      opened[id] = opened[id] or { id = id }
      opened[id].rank = tonumber(got[at + 1])
      list[#list + 1] = opened[id]
    end
    open_for[kind] = list
  elseif list.seen ~= rank_changes then
    -- Few have moved.
    for at = 2, #list do
      local one, before_it = list[at], at - 1
      while before_it > 0 and list[before_it].rank > one.rank do
        list[before_it + 1] = list[before_it]
        before_it = before_it - 1
      end
      list[before_it + 1] = one
    end
    list.seen = rank_changes
  end
  return list
end

--- Nobody holds a copy: no queue that should hold one may count as complete beyond this place.
local function nobody_holds(kind, score, id)
  for _, one in ipairs(open_workers(kind)) do lower_bound(worker_of(one.id), score, id) end
end

local function push_out_tail(worker)
  write_gathered()
  local tail = redis.call('ZRANGE', worker.queue, -1, -1, 'WITHSCORES')
  redis.call('ZREM', worker.queue, tail[1])
  worker.size = worker.size - 1
  add_load(worker.id, -1)
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

-- Where more workers than this could hold a copy in fanout, the first ones do: each copy is written, and taken back by whoever
-- takes the job, and the others find it in its lane as soon.
local CROWD = 16

local is_seeded = false

--- The order in which a list is gone through by strategy: which one is the `at`th.
local function visits(list)
  if strategy == 'round-robin' then
    -- Not in the root, which only the relay may write: whoever hints comes here too. No limit has this name.
    local turn = redis.call('HINCRBY', prefix .. 'turns', '', 1)
    return function(at) return list[(turn + at - 2) % #list + 1] end
  elseif strategy == 'random' then
    if not is_seeded then
      -- Where integers have 32 bits, all larger seeds are the same.
      math.randomseed(now() % 2147483647)
      is_seeded = true
    end
    return function(at)
      local other = math.random(at, #list)
      list[at], list[other] = list[other], list[at]
      return list[at]
    end
  end
  return function(at) return list[at] end
end

--- The first `width` that have room, by strategy, and where they stand. Nobody behind them is looked at.
local function choose(list, score, id)
  local found, places, value, visit = {}, {}, tonumber(score), visits(list)
  for at = 1, #list do
    local worker = worker_of(visit(at).id)
    if is_before_bound(value, id, worker) and has_room(worker, score, id) then
      found[#found + 1], places[#places + 1] = worker, at
      if #found == width then break end
    end
  end
  return found, places
end

--- Those at these places have one more now, and stand further back.
local function move_back(list, places)
  for nth = #places, 1, -1 do
    local at = places[nth]
    local one = list[at]
    while list[at + 1] and list[at + 1].rank < one.rank do
      list[at] = list[at + 1]
      at = at + 1
    end
    list[at] = one
  end
  list.seen = rank_changes
end

local function has_behind(worker, score, id)
  if worker.size == 0 then return false end
  write_gathered()
  local tail = redis.call('ZRANGE', worker.queue, -1, -1, 'WITHSCORES')
  return before(score, id, tail[2], tail[1])
end

--- All that have room; of a crowd the first, and who holds what comes behind the job. The rest is complete only up to here, and
--- who holds nothing works through its lanes.
local function all_with_room(list, score, id)
  local found, kept, value = {}, {}, tonumber(score)
  for _, one in ipairs(list) do
    local worker = worker_of(one.id)
    local is_wanted = is_before_bound(value, id, worker)
    if is_wanted and (#found < CROWD or has_behind(worker, score, id)) then
      if has_room(worker, score, id) then found[#found + 1] = worker end
    elseif #list > CROWD and worker.size == 0 then
      if worker.bound_value ~= -1 then set_worker_bound(worker, '-1', '') end
    elseif is_wanted then
      set_worker_bound(worker, score, id)
    end
    if worker.bound_value ~= -1 then kept[#kept + 1] = one end
  end
  return found, kept
end

--- Copy a job into the queues of workers that may run it: of all that have room (width 0), or of `width` of them.
local function copy(id, kind, score)
  local list = open_workers(kind)
  if not list[1] then return end
  local found, places
  if width > 0 then
    found, places = choose(list, score, id)
  else
    local kept
    found, kept = all_with_room(list, score, id)
    if #kept < #list then
      kept.seen = rank_changes
      open_for = { [kind] = kept }
    end
  end
  if not found[1] then return end
  local holders = {}
  for at, worker in ipairs(found) do
    gather('ZADD', worker.queue, score, id)
    worker.size = worker.size + 1
    add_load(worker.id, 1)
    holders[at] = worker.id
  end
  if by_load then move_back(list, places) end
  gather('HSET', held_key, id, table.concat(holders, ','))
  for _, worker in ipairs(found) do
    if worker.size > depth then push_out_tail(worker) end
  end
end
