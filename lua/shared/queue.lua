-- What every script knows of a queue in Redis: names, places in the order, lanes, limits, workers. Put in front of each script
-- by the loader; the other parts in this folder follow where a header names them. Lookups are kept for the length of one
-- call, members to add are gathered, and what has to be brought up to date at its end is done by `finish`.
--
-- A place in the order is (score, id), lower first; scores are strings outside of comparisons, since `tostring` loses digits.
-- A *kind* is what a worker may or may not serve: task, tag and constraint tag. Its number is that of its lane without a key.

local root = KEYS[1]
local state = redis.pcall('HMGET', root, 'generation', 'epoch', 'seq', 'width', 'strategy', 'depth', 'window', 'begun')
if state.err then
  -- Something else stands in its place: nothing is known of the queue, and it can begin anew.
  if not string.find(state.err, 'WRONGTYPE', 1, true) then return state end
  state = {}
end
local generation = state[1]
local width, strategy, depth, window = tonumber(state[4]), state[5], tonumber(state[6]), tonumber(state[7])
local prefix = root .. ':' .. tostring(generation) .. ':'
-- Of each job: `jobs` `<lane> <score> <token>`, `held` the workers with a copy, `taken` `<worker> <since> ` and what was in `jobs`.
local jobs_key, held_key, taken_key = prefix .. 'jobs', prefix .. 'held', prefix .. 'taken'
-- The part before the queue's own: channels are not bound to a slot.
local deployment = string.match(root, '^(.-):{')

--- In microseconds.
local function now()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

--- Of a place whose score is known as a number, against the bound of a lane or a worker.
local function is_before_bound(value, id, bounded)
  local bound = bounded.bound_value
  return not bound or value < bound or (value == bound and id < bounded.bound_id)
end

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

--- Redis searches a hash of up to 512 short values from its beginning. One long value, under an empty name, makes it a table.
local function make_table(key) redis.call('HSET', key, '', string.rep('-', 100)) end

local gathered = {}
--- ZADD or HSET, by `write_gathered`: whoever reads what is gathered calls that first.
local function gather(command, key, one, other)
  local list = gathered[key]
  if not list then
    list = { command = command, count = 0 }
    gathered[key] = list
  end
  local count = list.count
  list[count + 1], list[count + 2], list.count = one, other, count + 2
end

local function write_gathered()
  for key, list in pairs(gathered) do
    gathered[key] = nil
    bulk(list.command, key, list)
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
    local got = redis.call('HMGET', facts, 'kind', 'limit', 'key-limit', 'bound-score', 'bound-id', 'head', 'spilled')
    lane = got[1] and {
      number = number, kind = got[1], limits = {}, bound_score = got[4], bound_id = got[5], head = got[6],
      bound_value = got[4] and tonumber(got[4]), facts = facts, home = prefix .. 'lane:' .. number,
      is_spilled = got[7] and true,
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

local function size_of(lane)
  lane.size = lane.size or redis.call('ZCARD', lane.home)
  return lane.size
end

local function set_lane_bound(lane, score, id)
  lane.bound_score, lane.bound_id, lane.bound_value = score, id, score and tonumber(score)
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
--- Ask for it where lanes that were touched run low.
local function tell_low()
  for number in pairs(touched) do
    local lane = lane_of(number)
    if lane and lane.bound_score and not lane.is_spilled and size_of(lane) < window / 2 then want_more(number) end
  end
  if #low > 0 then redis.call('PUBLISH', deployment .. ':low', root .. ' ' .. table.concat(low, ',')) end
end

-- Limits -----------------------------------------------------------------------------------------------------------------

local free_slots = {}
-- `slots` of a limit: how many are free. `full`: the limits that have none, so that a beat need not look at the others.
local full_key = prefix .. 'full'
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

--- The same for many limits, in few calls.
local function read_free(limits)
  for first = 1, #limits, 1000 do
    local last = math.min(first + 999, #limits)
    for at, free in ipairs(redis.call('HMGET', prefix .. 'slots', unpack(limits, first, last))) do
      local limit = limits[first + at - 1]
      free_slots[limit] = free_slots[limit] or tonumber(free or '0')
    end
  end
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
    local key = prefix .. 'worker:' .. id
    local got = redis.call('HMGET', key, 'bound-score', 'bound-id', 'running')
    worker = {
      id = id, key = key, queue = prefix .. 'queue:' .. id, running = tonumber(got[3] or '0'),
      bound_score = got[1], bound_id = got[2], bound_value = got[1] and tonumber(got[1]),
    }
    worker.size = redis.call('ZCARD', worker.queue)
    workers[id] = worker
  end
  return worker
end

--- Who has a queue for copies is in `open`: all but those who work through their lanes. In the order in which they are chosen:
--- by load (queued and running), ties by number, where that decides, else by number alone.
local open_key = prefix .. 'open'
local by_load = width and width > 0 and strategy == 'least-queue'
local ONE_LOAD = 4294967296

local function rank_of(worker)
  local number = tonumber(worker.id) % ONE_LOAD
  return by_load and (worker.size + worker.running) * ONE_LOAD + number or number
end

-- What was read of `open` in this call, by worker, and how often ranks changed.
local opened, rank_changes = {}, 0

local function add_load(id, count)
  if not by_load or count == 0 then return end
  redis.call('ZADD', open_key, 'XX', 'INCR', string.format('%.0f', count * ONE_LOAD), id)
  rank_changes = rank_changes + 1
  if opened[id] then opened[id].rank = opened[id].rank + count * ONE_LOAD end
end

--- Up to where this worker's queue is complete; no bound: it holds a copy of all that it should.
local function set_worker_bound(worker, score, id)
  local was_open = worker.bound_value ~= -1
  worker.bound_score, worker.bound_id, worker.bound_value = score, id, score and tonumber(score)
  if score then
    redis.call('HSET', worker.key, 'bound-score', score, 'bound-id', id)
  else
    redis.call('HDEL', worker.key, 'bound-score', 'bound-id')
  end
  if worker.bound_value == -1 then
    if was_open then redis.call('ZREM', open_key, worker.id) end
  elseif not was_open then
    redis.call('ZADD', open_key, string.format('%.0f', rank_of(worker)), worker.id)
  end
end

local eligible = {}

--- Who may serve a kind, in the order of their ids.
local function eligible_for(kind)
  local found = eligible[kind]
  if not found then
    found = redis.call('SMEMBERS', prefix .. 'workers-of:' .. kind)
    -- Redis keeps small sets of numbers in order.
    for at = 2, #found do
      if tonumber(found[at - 1]) > tonumber(found[at]) then
        table.sort(found, function(a, b) return tonumber(a) < tonumber(b) end)
        break
      end
    end
    eligible[kind] = found
  end
  return found
end

-- The relay's steps ----------------------------------------------------------------------------------------------------

--- A later leader has been here. An epoch that none can have reached is not one: they rise by one with each term.
local function is_over(epoch)
  local ahead = (tonumber(string.match(state[2] or '', '^%d+$') or '') or 0) - tonumber(epoch)
  return ahead > 0 and ahead < 1000000
end

--- Fence a step of the relay. nil: go on. FENCED: a later leader has been here. LOST: this is not the content that the relay
--- knows (emptied, an older state of it, or a step that failed half-way). AGAIN: this very step was done, and its answer was lost.
local function fence(epoch, of_generation, seq)
  if generation and is_over(epoch) then return 'FENCED' end
  if not generation or of_generation ~= generation then return 'LOST' end
  if tonumber(seq) == tonumber(state[3]) then return 'AGAIN' end
  if tonumber(seq) ~= tonumber(state[3]) + 1 then return 'LOST' end
  if state[8] == seq then return 'LOST' end
  redis.call('HSET', root, 'epoch', epoch, 'begun', seq)
end

--- The step is done, and not before: an error on the way leaves it begun.
local function done(reply)
  redis.call('HSET', root, 'seq', arg.seq)
  return reply
end
