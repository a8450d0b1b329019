-- What every script knows of a queue in Redis: names, places in the order, lanes, workers, limits. Put in front of each
-- script by the loader. Lookups are kept for the length of one call, and what has to be brought up to date at its end is
-- done by `finish`.
--
-- A place in the order is (score, id), lower first; scores are strings outside of comparisons, since `tostring` loses digits.
-- A *kind* is what a worker may or may not serve: task, tag and constraint tag. Its number is that of its lane without a key.

local root = KEYS[1]
local state = redis.call('HMGET', root, 'generation', 'epoch', 'seq', 'width', 'strategy', 'depth', 'window')
local generation = state[1]
local width, strategy, depth, window = tonumber(state[4]), state[5], tonumber(state[6]), tonumber(state[7])
local prefix = root .. ':' .. tostring(generation) .. ':'
-- The part before the queue's own: channels are not bound to a slot.
local deployment = string.match(root, '^(.-):{')
local clock = redis.call('TIME')
local now_ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))

local function before(score, id, other_score, other_id)
  local a, b = tonumber(score), tonumber(other_score)
  return a < b or (a == b and id < other_id)
end

local function each(text, visit)
  if text then
    for item in string.gmatch(text, '[^,]+') do visit(item) end
  end
end

--- Calls with many members, in pieces that Lua can hand over.
local function bulk(command, key, members)
  for first = 1, #members, 1000 do
    redis.call(command, key, unpack(members, first, math.min(first + 999, #members)))
  end
end

-- Lanes ------------------------------------------------------------------------------------------------------------------

local lanes = {}
local touched = {}

--- What is known of a lane, or nil: then nothing of it has been read in, and all its jobs are in Postgres only.
local function lane_of(number)
  local lane = lanes[number]
  if lane == nil then
    local facts = prefix .. 'lane-facts:' .. number
    local got = redis.call('HMGET', facts, 'kind', 'limit', 'key-limit', 'bound-score', 'bound-id', 'head')
    lane = got[1] and {
      number = number, kind = got[1], limits = {}, bound_score = got[4], bound_id = got[5], head = got[6],
      facts = facts, home = prefix .. 'lane:' .. number,
    } or false
    if lane then
      for at = 2, 3 do
        if got[at] then table.insert(lane.limits, got[at]) end
      end
      lane.key_limit = got[3]
      -- Copied into queues. Lanes with a key are many, and their limits come and go: they are merged in by their heads.
      lane.is_plain = #lane.limits == 0 and lane.kind == number
    end
    lanes[number] = lane
  end
  return lane or nil
end

local function set_lane_bound(lane, score, id)
  lane.bound_score, lane.bound_id = score, id
  if score then
    redis.call('HSET', lane.facts, 'bound-score', score, 'bound-id', id)
    redis.call('SADD', prefix .. 'bounded', lane.number)
  else
    redis.call('HDEL', lane.facts, 'bound-score', 'bound-id')
    redis.call('SREM', prefix .. 'bounded', lane.number)
  end
end

local low = {}
--- The relay should read on in this lane.
local function want_more(number)
  if redis.call('SADD', prefix .. 'low', number) == 1 then low[#low + 1] = number end
end

-- Limits -----------------------------------------------------------------------------------------------------------------

local free_slots = {}
-- Of limits whose count changes in this call: what was free before it, and what the heads were made from.
local free_before, free_in_heads = {}, {}

local function free_of(limit)
  if not limit then return math.huge end
  local free = free_slots[limit]
  if not free then
    free = tonumber(redis.call('HGET', prefix .. 'slots', limit) or '0')
    free_slots[limit] = free
  end
  return free
end

--- Written by `finish`.
local function add_slots(limit, count)
  local free = free_of(limit)
  if not free_before[limit] then free_before[limit], free_in_heads[limit] = free, free end
  free_slots[limit] = free + count
end

local function has_slots(lane)
  for _, limit in ipairs(lane.limits) do
    if free_of(limit) <= 0 then return false end
  end
  return true
end

local function add_slots_of(lane, count)
  for _, limit in ipairs(lane.limits) do add_slots(limit, count) end
end

-- Workers ----------------------------------------------------------------------------------------------------------------

local workers = {}

local function worker_of(id)
  local worker = workers[id]
  if worker == nil then
    local got = redis.call('HMGET', prefix .. 'worker:' .. id, 'bound-score', 'bound-id', 'running', 'plain', 'limited')
    worker = {
      id = id, bound_score = got[1], bound_id = got[2], running = tonumber(got[3] or '0'), plain = got[4], limited = got[5],
      queue = prefix .. 'queue:' .. id,
    }
    worker.size = redis.call('ZCARD', worker.queue)
    workers[id] = worker
  end
  return worker
end

--- Up to where this worker's queue is complete; no bound: it holds a copy of all that it should.
local function set_worker_bound(worker, score, id)
  worker.bound_score, worker.bound_id = score, id
  if score then
    redis.call('HSET', prefix .. 'worker:' .. worker.id, 'bound-score', score, 'bound-id', id)
  else
    redis.call('HDEL', prefix .. 'worker:' .. worker.id, 'bound-score', 'bound-id')
  end
end

local function lower_bound(worker, score, id)
  if not worker.bound_score or before(score, id, worker.bound_score, worker.bound_id) then
    set_worker_bound(worker, score, id)
  end
end

local eligible = {}

--- Who may serve a kind, in the order of their ids.
local function eligible_for(kind)
  local found = eligible[kind]
  if not found then
    found = redis.call('SMEMBERS', prefix .. 'workers-of:' .. kind)
    table.sort(found, function(a, b) return tonumber(a) < tonumber(b) end)
    eligible[kind] = found
  end
  return found
end

-- Bells ------------------------------------------------------------------------------------------------------------------

local bells = 0
local idle
local nobody = {}

local function idle_workers()
  idle = idle or redis.call('ZRANGE', prefix .. 'idle', 0, -1)
  return idle
end

--- Wake the worker that has been idle longest of those that may serve the kind. Each is rung once, and none while it works.
local function ring(kind)
  if nobody[kind] then return false end
  local may = {}
  if #idle_workers() > 0 then
    for _, worker in ipairs(eligible_for(kind)) do may[worker] = true end
  end
  for at, worker in ipairs(idle) do
    if may[worker] then
      table.remove(idle, at)
      redis.call('ZREM', prefix .. 'idle', worker)
      redis.call('PUBLISH', deployment .. ':bell:' .. worker, '')
      bells = bells + 1
      return true
    end
  end
  nobody[kind] = true
  return false
end

local rung = {}

--- Wake workers for up to `most` jobs of a lane under limits, and for no more than have slots. Answers for how many.
local function ring_limited(lane, most)
  for _, limit in ipairs(lane.limits) do most = math.min(most, free_of(limit) - (rung[limit] or 0)) end
  local count = 0
  while count < most and ring(lane.kind) do count = count + 1 end
  for _, limit in ipairs(lane.limits) do rung[limit] = (rung[limit] or 0) + count end
  return count
end

-- Copies -----------------------------------------------------------------------------------------------------------------

local function drop_holder(id, worker)
  local kept = {}
  each(redis.call('HGET', prefix .. 'held', id), function(holder)
    if holder ~= worker then kept[#kept + 1] = holder end
  end)
  if #kept == 0 then
    redis.call('HDEL', prefix .. 'held', id)
  else
    redis.call('HSET', prefix .. 'held', id, table.concat(kept, ','))
  end
  return #kept
end

--- Nobody holds a copy: no queue that should hold one may count as complete beyond this place.
local function nobody_holds(kind, score, id)
  for _, worker in ipairs(eligible_for(kind)) do lower_bound(worker_of(worker), score, id) end
end

local function push_out_tail(worker)
  local tail = redis.call('ZRANGE', worker.queue, -1, -1, 'WITHSCORES')
  redis.call('ZREM', worker.queue, tail[1])
  worker.size = worker.size - 1
  lower_bound(worker, tail[2], tail[1])
  if drop_holder(tail[1], worker.id) == 0 and width > 0 then
    local lane = string.match(redis.call('HGET', prefix .. 'jobs', tail[1]) or '', '^%S+')
    local known = lane and lane_of(lane)
    if known then nobody_holds(known.kind, tail[2], tail[1]) end
  end
end

local function has_room(worker, score, id)
  if worker.bound_score and not before(score, id, worker.bound_score, worker.bound_id) then return false end
  if worker.size < depth then return true end
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
      math.randomseed((clock[1] * 1000000 + clock[2]) % 2147483647)
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

--- Copy a job into the queues of workers that may run it: of all that have room (width 0), or of `width` of them.
local function copy(id, kind, score)
  local found = {}
  for _, worker in ipairs(eligible_for(kind)) do
    local known = worker_of(worker)
    if has_room(known, score, id) then found[#found + 1] = known end
  end
  if width > 0 then found = choose(found) end
  local holders = {}
  for at, worker in ipairs(found) do
    redis.call('ZADD', worker.queue, score, id)
    worker.size = worker.size + 1
    holders[at] = worker.id
  end
  if #holders > 0 then
    redis.call('HSET', prefix .. 'held', id, table.concat(holders, ','))
    for _, worker in ipairs(found) do
      if worker.size > depth then push_out_tail(worker) end
    end
  end
end

-- Jobs -------------------------------------------------------------------------------------------------------------------

local function drop_copies(id)
  each(redis.call('HGET', prefix .. 'held', id), function(holder)
    redis.call('ZREM', prefix .. 'queue:' .. holder, id)
    if workers[holder] then workers[holder].size = workers[holder].size - 1 end
  end)
  redis.call('HDEL', prefix .. 'held', id)
end

--- A job leaves Redis: its lane and every queue that holds a copy, and nothing else is looked at.
local function remove(id)
  local number = string.match(redis.call('HGET', prefix .. 'jobs', id) or '', '^%S+')
  if not number then return false end
  redis.call('ZREM', prefix .. 'lane:' .. number, id)
  redis.call('HDEL', prefix .. 'jobs', id)
  drop_copies(id)
  touched[number] = true
  return true
end

--- A ready job becomes known. `how`: 'hint' adds what is absent, 'relay' brings up to date, 'audit' also what somebody took and
--- never claimed. Answers placed | known | taken | beyond (no room in the window) | unknown (its lane is not read in).
local function place(id, number, score, token, how)
  local lane = lane_of(number)
  local taken = redis.call('HGET', prefix .. 'taken', id)
  if taken then
    local taken_token = string.match(taken, '^%S+ %S+ (%S+)')
    if how ~= 'audit' and tonumber(taken_token) >= tonumber(token) then return 'taken' end
    redis.call('HDEL', prefix .. 'taken', id)
  end
  local known = redis.call('HGET', prefix .. 'jobs', id)
  if known then
    if how == 'hint' then return 'known' end
    local was_lane, was_score = string.match(known, '^(%S+) (%S+)')
    if was_lane == number and was_score == score then
      redis.call('HSET', prefix .. 'jobs', id, number .. ' ' .. score .. ' ' .. token)
      return 'known'
    end
    remove(id)
  end
  if not lane then
    want_more(number)
    return 'unknown'
  end
  if lane.bound_score and not before(score, id, lane.bound_score, lane.bound_id) then return 'beyond' end
  redis.call('ZADD', lane.home, score, id)
  redis.call('HSET', prefix .. 'jobs', id, number .. ' ' .. score .. ' ' .. token)
  touched[number] = true
  if redis.call('ZCARD', lane.home) > window then
    local tail = redis.call('ZRANGE', lane.home, -1, -1, 'WITHSCORES')
    remove(tail[1])
    set_lane_bound(lane, tail[2], tail[1])
    if tail[1] == id then return 'beyond' end
  end
  if lane.is_plain then
    copy(id, lane.kind, score)
    ring(lane.kind)
  else
    ring_limited(lane, 1)
  end
  return 'placed'
end

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
  for number in pairs(touched) do
    local lane = lane_of(number)
    if lane and not lane.is_plain then
      local best = redis.call('ZRANGE', lane.home, 0, 0, 'WITHSCORES')
      local head = best[1] and free_of(lane.key_limit) > 0 and best[1]
      local heads = prefix .. 'heads:' .. lane.kind
      if lane.head and lane.head ~= head then redis.call('ZREM', heads, lane.head .. ' ' .. number) end
      if head then
        redis.call('ZADD', heads, best[2], head .. ' ' .. number)
        if lane.head ~= head then redis.call('HSET', lane.facts, 'head', head) end
      elseif lane.head then
        redis.call('HDEL', lane.facts, 'head')
      end
      lane.head = head
    end
  end
end

--- So many slots of a limit are free that were not before: for each at most one worker is woken.
local function ring_for_slots(limit, left)
  left = math.min(left, #idle_workers())
  if left <= 0 then return end
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'under:' .. limit)) do
    local lane = lane_of(number)
    if lane and lane.key_limit == limit then
      left = left - ring_limited(lane, math.min(left, redis.call('ZCARD', lane.home)))
    else
      for _, head in ipairs(redis.call('ZRANGE', prefix .. 'heads:' .. number, 0, left - 1)) do
        lane = lane_at_head(head)
        left = left - ring_limited(lane, math.min(left, redis.call('ZCARD', lane.home)))
      end
    end
    if left <= 0 then return end
  end
end

--- Bring up to date what depends on the slots that were given and taken, and on the lanes that were touched.
local function finish()
  refresh_heads()
  for limit, before_call in pairs(free_before) do
    local free = free_of(limit)
    redis.call('HSET', prefix .. 'slots', limit, free)
    -- Every change gets a number, so that whoever sets the absolute count knows whether it is still the truth.
    redis.call('HINCRBY', prefix .. 'turns', limit, 1)
    ring_for_slots(limit, math.min(free, free - before_call) - (rung[limit] or 0))
  end
  for number in pairs(touched) do
    local lane = lane_of(number)
    if lane and lane.bound_score and redis.call('ZCARD', lane.home) < window / 2 then want_more(number) end
  end
  if #low > 0 then redis.call('PUBLISH', deployment .. ':low', root .. ' ' .. table.concat(low, ',')) end
end

-- The relay's steps ----------------------------------------------------------------------------------------------------

--- Fence a step of the relay. nil: go on. FENCED: a later leader has been here. LOST: this is not the content that the relay
--- knows (emptied, or an older state of it). AGAIN: this very step was done before, and its answer was lost.
local function fence(epoch, of_generation, seq)
  if generation and tonumber(epoch) < tonumber(state[2]) then return 'FENCED' end
  if not generation or of_generation ~= generation then return 'LOST' end
  if tonumber(seq) == tonumber(state[3]) then return 'AGAIN' end
  if tonumber(seq) ~= tonumber(state[3]) + 1 then return 'LOST' end
  redis.call('HSET', root, 'epoch', epoch, 'seq', seq)
end
