#!lua flags=allow-oom
--- take: the best jobs that a worker may run, out of its lane and of every queue, in one step. First come the worker's own
--- queue, which holds copies in order up to its bound, then its lanes; lanes under limits are merged in by their heads, as far
--- as slots are free. The worker says what became of earlier ones, which slots its runs have freed, and how many it runs.
--- Nothing is taken from beyond the edge, where one of its lanes goes on in Postgres. A worker that gets less than it wants is
--- idle from here on, and is rung when there is something for it.
--- A backlog that goes on in Postgres is left to it where few workers share it, and all of them the same lanes: they claim there
--- themselves, in order, until one gets less than it asked for. Naming each job here first would cost more than it saves.
--- @key root
--- @use takes bells finish spilled
--- @arg generation  {text} in which it registered
--- @arg worker       {int}
--- @arg limit       {int} how many at most; 0: only tells
--- @arg running     {int} how many it runs
--- @arg freed       {counts} lane, count, lane, count, …: ended runs of lanes under limits, and jobs it took in vain
--- @arg straight    {may|short|} may: it can claim from Postgres itself; short: it did, and got less than it asked for; or nothing
--- @arg ending      {counts} lane, count, …: runs under limits that end with the very claim that follows; their slots are for it alone
--- @items           id {text}, of what it took earlier and claimed, or found gone
--- @returns         {code, ids, lanes, lanes under limits among them, how many of `ending` were used in each, 1 where it is to
---                  claim from Postgres itself}; code OK | LOST (another generation) | UNKNOWN (it is not registered)
if not generation or generation ~= arg.generation then return { 'LOST' } end
if redis.call('HEXISTS', prefix .. 'workers', arg.worker) == 0 then return { 'UNKNOWN' } end
local limit = tonumber(arg.limit)
if limit > 0 then redis.call('ZREM', prefix .. 'rung', arg.worker) end
tell_running()
acknowledge()

local function each_count(text, visit)
  local number
  each(text, function(item)
    if not number then
      number = item
    else
      visit(number, tonumber(item))
      number = nil
    end
  end)
end
each_count(arg.freed, function(number, count)
  local lane = lane_of(number)
  if lane then add_slots_of(lane, count) end
end)
-- Before this worker looks itself.
refresh_heads()

-- A heap of cursors, each at its best job.
local heap = {}
local function better(a, b) return a.value < b.value or (a.value == b.value and a.id < b.id) end
local function sift_down()
  local at = 1
  while true do
    local best, left = at, 2 * at
    if heap[left] and better(heap[left], heap[best]) then best = left end
    if heap[left + 1] and better(heap[left + 1], heap[best]) then best = left + 1 end
    if best == at then return end
    heap[at], heap[best] = heap[best], heap[at]
    at = best
  end
end
local function push(cursor)
  local at = #heap + 1
  heap[at] = cursor
  while at > 1 do
    local parent = math.floor(at / 2)
    if not better(heap[at], heap[parent]) then return end
    heap[at], heap[parent] = heap[parent], heap[at]
    at = parent
  end
end
local function pop()
  local top = heap[1]
  heap[1] = heap[#heap]
  heap[#heap] = nil
  sift_down()
  return top
end
--- Move on to the next job; false at the end.
local function advance(cursor)
  cursor.at = cursor.at + 2
  if not cursor.page[cursor.at] then
    if cursor.is_last then return false end
    cursor.page = redis.call('ZRANGE', cursor.key, cursor.read, cursor.read + cursor.size - 1, 'WITHSCORES')
    cursor.read = cursor.read + cursor.size
    cursor.is_last = #cursor.page < 2 * cursor.size
    cursor.at = 1
    if not cursor.page[1] then return false end
  end
  cursor.id, cursor.score = cursor.page[cursor.at], cursor.page[cursor.at + 1]
  cursor.value = tonumber(cursor.score)
  return true
end
local function begin(key, lane, size)
  local cursor = { key = key, lane = lane, size = size, read = 0, page = {}, at = -1, is_last = false }
  if not advance(cursor) then return false end
  push(cursor)
  return true
end

-- Of `ending`, by lane: what is left, and what was used.
local spare, spare_used, spare_lanes = {}, {}, 0
-- There may be thousands of lanes, of few kinds.
local is_served = {}
local function serves(kind)
  if is_served[kind] == nil then
    is_served[kind] = redis.call('SISMEMBER', prefix .. 'workers-of:' .. kind, me.id) == 1
  end
  return is_served[kind]
end
each_count(arg.ending, function(number, count)
  local lane = lane_of(number)
  if lane and not lane.is_plain and serves(lane.kind) then
    spare[number] = count
    spare_lanes = spare_lanes + 1
  end
end)

local function can_start(lane) return has_slots(lane) or (spare[lane.number] or 0) > 0 end

--- Who serves one of its lanes serves them all. Any other worker would not be woken for what is left to Postgres.
local function are_all_alike()
  local kinds, count, others = redis.call('HGET', me.key, 'plain'), 0, nil
  local is_alike = true
  each(kinds, function(kind)
    local serving = table.concat(eligible_for(kind), ',')
    count, is_alike, others = count + 1, is_alike and (not others or others == serving), serving
  end)
  each(others, function(worker)
    local _, served = string.gsub(redis.call('HGET', prefix .. 'worker:' .. worker, 'plain') or '', '[^,]+', '')
    is_alike = is_alike and served == count
  end)
  return is_alike
end

local function may_go_straight()
  return arg.straight == 'may' and redis.call('HLEN', prefix .. 'workers') <= 4 and are_all_alike()
end
if arg.straight == 'short' then unspill() end

-- The lanes of this worker that go on in Postgres, by where they do. What lies behind the first of them that can start a job is
-- not taken before the relay has read on there: the next job in order may be in Postgres.
local edges = {}
local goes_straight = false
if limit > 0 then
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'bounded')) do
    local lane = lane_of(number)
    if serves(lane.kind) then
      edges[#edges + 1] = lane
      goes_straight = goes_straight or lane.is_spilled
    end
  end
  if goes_straight and not may_go_straight() then
    goes_straight = false
    unspill()
  end
  table.sort(edges, function(a, b) return before(b.bound_score, b.bound_id, a.bound_score, a.bound_id) end)
end

local function is_beyond_edge(cursor)
  -- Slots only become fewer here: a lane that has none any more holds nothing up.
  while edges[1] and not can_start(edges[#edges]) do edges[#edges] = nil end
  local edge = edges[#edges]
  return edge and not before(cursor.score, cursor.id, edge.bound_score, edge.bound_id)
end

local picked, is_picked = {}, {}
local skipped = {}
-- Kinds that it serves.
local plain, limited
local is_queue_done, has_walked, is_at_edge = false, false, false

-- Of those that come from lanes; a copy does not tell.
local lane_of_picked = {}
local function pick(id, lane)
  picked[#picked + 1] = id
  is_picked[id] = true
  if lane then lane_of_picked[#picked] = lane.number end
end

--- The best of the only lane that is left, without a look at their scores: they are dear to read, and a backlog is like that.
local function pick_from(lane)
  for _, id in ipairs(redis.call('ZRANGE', lane.home, 0, limit - 1)) do
    if #picked == limit then return end
    if not is_picked[id] then pick(id, lane) end
  end
end

if limit > 0 and not goes_straight then
  local kinds = redis.call('HMGET', me.key, 'plain', 'limited')
  plain, limited = kinds[1], kinds[2]
  is_queue_done = me.size == 0 or not begin(me.queue, nil, limit)
  local has_begun = {}
  each(limited, function(kind)
    local heads = redis.call('ZRANGE', prefix .. 'heads:' .. kind, 0, limit - 1)
    local at_heads, limits = {}, {}
    for at, head in ipairs(heads) do
      local lane = lane_at_head(head)
      at_heads[at] = lane
      if lane.key_limit then limits[#limits + 1] = lane.key_limit end
    end
    read_free(limits)
    for _, lane in ipairs(at_heads) do
      if can_start(lane) then
        has_begun[lane.number] = true
        begin(lane.home, lane, math.max(4, math.ceil(limit / #heads)))
      end
    end
  end)
  -- Where a key has no slot, its lane is not among the heads. Where it has, and nothing else limits it, so many lanes are better.
  for number in pairs(spare) do
    local lane = lane_of(number)
    if not has_begun[number] and not (lane.head and lane.key_limit and #lane.limits == 1) then
      begin(lane.home, lane, math.max(4, math.ceil(limit / spare_lanes)))
    end
  end
end

while #picked < limit and not goes_straight do
  -- The queue is used up. Where it was not complete, the lanes have the rest; where copies go to some workers only, they
  -- also have what others hold.
  if is_queue_done and not has_walked and (me.bound_score or width > 0) then
    has_walked = true
    local with_jobs = {}
    each(plain, function(kind)
      local lane = lane_of(kind)
      if lane and size_of(lane) > 0 then with_jobs[#with_jobs + 1] = lane end
    end)
    if width == 0 and not heap[1] and #with_jobs == 1 and not edges[2] and (edges[1] or with_jobs[1]) == with_jobs[1] then
      pick_from(with_jobs[1])
      break
    end
    local page = math.max(4, math.min(limit, math.ceil(1.5 * limit / #with_jobs)))
    for _, lane in ipairs(with_jobs) do begin(lane.home, lane, page) end
  end
  local cursor = pop()
  if not cursor then break end
  local id, lane = cursor.id, cursor.lane
  local goes_on = true
  if lane and not lane.is_plain and not can_start(lane) then
    goes_on = false
  elseif is_beyond_edge(cursor) then
    is_at_edge = true
    if has_walked or width == 0 then break end
    -- Its own copies are beyond; what others hold, or nobody, may not be.
    heap, is_queue_done, goes_on = {}, true, false
  elseif not lane then
    pick(id)
  elseif not lane.is_plain then
    pick(id, lane)
    if (spare[lane.number] or 0) > 0 then
      spare[lane.number] = spare[lane.number] - 1
      spare_used[lane.number] = (spare_used[lane.number] or 0) + 1
    else
      add_slots_of(lane, -1)
    end
  elseif not is_picked[id] then
    if width > 0 and #skipped < 1000 and redis.call('HEXISTS', held_key, id) == 1 then
      skipped[#skipped + 1] = id
    else
      pick(id, lane)
    end
  end
  if goes_on and advance(cursor) then
    push(cursor)
  elseif not lane then
    is_queue_done = true
  end
end
-- Rather what others hold than nothing.
for _, id in ipairs(skipped) do
  if #picked >= limit then break end
  pick(id)
end

local numbers = {}
if #picked > 0 then
  local by_lane, by_holder, records, held = {}, {}, {}, {}
  local has_copies = redis.call('HLEN', held_key) > 1
  local mine = taker()
  for first = 1, #picked, 1000 do
    local last = math.min(first + 999, #picked)
    local jobs = redis.call('HMGET', jobs_key, unpack(picked, first, last))
    local holders = has_copies and redis.call('HMGET', held_key, unpack(picked, first, last)) or {}
    for at = first, last do
      local id, job = picked[at], jobs[at - first + 1]
      local number = lane_of_picked[at] or string.match(job, '^%S+')
      numbers[at] = number
      by_lane[number] = by_lane[number] or {}
      local in_lane = by_lane[number]
      in_lane[#in_lane + 1] = id
      records[2 * at - 1], records[2 * at] = id, mine .. job
      if holders[at - first + 1] then
        held[#held + 1] = id
        each(holders[at - first + 1], function(holder)
          by_holder[holder] = by_holder[holder] or {}
          table.insert(by_holder[holder], id)
        end)
      end
    end
  end
  for number, ids in pairs(by_lane) do
    touched[number] = true
    bulk('ZREM', prefix .. 'lane:' .. number, ids)
    lane_of(number).size = nil
  end
  for holder, ids in pairs(by_holder) do
    bulk('ZREM', prefix .. 'queue:' .. holder, ids)
    add_load(holder, -#ids)
  end
  me.size = me.size - #(by_holder[me.id] or {})
  bulk('HDEL', held_key, held)
  bulk('HDEL', jobs_key, picked)
  bulk('HSET', taken_key, records)
end

--- All jobs of a lane are in Postgres alone from here on.
local function spill(lane)
  local ids = redis.call('ZRANGE', lane.home, 0, -1)
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    for at, holders in ipairs(redis.call('HMGET', held_key, unpack(ids, first, last))) do
      each(holders, function(holder)
        redis.call('ZREM', prefix .. 'queue:' .. holder, ids[first + at - 1])
        add_load(holder, -1)
        if holder == me.id then me.size = me.size - 1 end
      end)
    end
  end
  bulk('HDEL', held_key, ids)
  bulk('HDEL', jobs_key, ids)
  redis.call('DEL', lane.home)
  lane.size, lane.is_spilled = 0, true
  set_lane_bound(lane, '-1', '')
  redis.call('HSET', lane.facts, 'spilled', 1)
  redis.call('SADD', prefix .. 'spilled', lane.number)
  redis.call('SREM', prefix .. 'low', lane.number)
end
if #picked == limit and edges[1] and not string.find(limited or '', '%d') and may_go_straight() then
  goes_straight = true
  each(plain, function(kind)
    local lane = lane_of(kind)
    if lane then spill(lane) end
  end)
end

if goes_straight then
  redis.call('ZREM', prefix .. 'idle', me.id)
elseif limit > 0 then
  if #picked < limit and not is_at_edge then
    -- Everything that it may run has been looked at.
    if me.bound_score then set_worker_bound(me, nil) end
  elseif me.bound_score and me.size == 0 then
    -- It works through its lanes: copies would only be made to be taken back.
    set_worker_bound(me, '-1', '')
  end
  if #picked < limit then
    redis.call('ZADD', prefix .. 'idle', 'NX', string.format('%.0f', now()), me.id)
  else
    redis.call('ZREM', prefix .. 'idle', me.id)
  end
end
finish()
local under, under_used, is_told = {}, {}, {}
for _, number in ipairs(numbers) do
  if not is_told[number] and not lane_of(number).is_plain then
    is_told[number] = true
    under[#under + 1] = number
    under_used[#under_used + 1] = spare_used[number] or 0
  end
end
return { 'OK', picked, numbers, under, under_used, goes_straight and 1 or 0 }
