-- Ready jobs come, change and go.

-- What `jobs` and `taken` say, as far as it was read in this call; false: nothing.
local known_jobs, known_taken = {}, {}

-- The call is about one job: whoever is rung for it need not take it first.
local is_lone = false

--- Read in one go what is known of the jobs among the items, of which each has so many parts.
local function look_up(parts)
  for first = items, #ARGV, 1000 * parts do
    local ids = {}
    for at = first, math.min(first + 1000 * parts, #ARGV + 1) - 1, parts do ids[#ids + 1] = ARGV[at] end
    local jobs = redis.call('HMGET', jobs_key, unpack(ids))
    local taken = redis.call('HMGET', taken_key, unpack(ids))
    for at, id in ipairs(ids) do known_jobs[id], known_taken[id] = jobs[at], taken[at] end
  end
end

local function job_of(id)
  if known_jobs[id] == nil then known_jobs[id] = redis.call('HGET', jobs_key, id) end
  return known_jobs[id]
end

local function set_job(id, number, score, token)
  local record = number .. ' ' .. score .. ' ' .. token
  known_jobs[id] = record
  gather('HSET', jobs_key, id, record)
end

local function taken_of(id)
  if known_taken[id] == nil then known_taken[id] = redis.call('HGET', taken_key, id) end
  return known_taken[id]
end

local function forget_taken(id)
  known_taken[id] = false
  redis.call('HDEL', taken_key, id)
end

local function drop_copies(id)
  each(redis.call('HGET', held_key, id), function(holder)
    redis.call('ZREM', prefix .. 'queue:' .. holder, id)
    if workers[holder] then workers[holder].size = workers[holder].size - 1 end
    add_load(holder, -1)
  end)
  redis.call('HDEL', held_key, id)
end

--- A job leaves Redis: its lane and every queue that holds a copy, and nothing else is looked at.
local function remove(id)
  local number = string.match(job_of(id) or '', '^%S+')
  if not number then return false end
  write_gathered()
  local was_there = redis.call('ZREM', prefix .. 'lane:' .. number, id)
  redis.call('HDEL', jobs_key, id)
  drop_copies(id)
  known_jobs[id] = false
  local lane = lanes[number]
  if lane and lane.size then lane.size = lane.size - was_there end
  touched[number] = true
  return true
end

--- A ready job becomes known. `how`: 'hint' adds what is absent, 'relay' brings up to date, also what has changed since somebody took
--- it, 'check' also what seems to be there, 'audit' also what somebody took and never claimed. Answers placed | known | taken | beyond (no room in the window) | unknown (its lane is not read in).
local function place(id, number, score, token, how)
  local lane = lanes[number] or lane_of(number)
  local taken = taken_of(id)
  if taken then
    local was_lane, was_score, was_token = string.match(taken, '(%S+) (%S+) (%S+)$')
    local newer = tonumber(token) - tonumber(was_token)
    -- It has changed since, and nobody has claimed it: whoever took it may put it back where it was.
    local is_changed = (how == 'relay' or how == 'check') and newer == 0 and (was_lane ~= number or was_score ~= score)
    if how ~= 'audit' and newer <= 0 and not is_changed then return 'taken' end
    forget_taken(id)
    local left = is_changed and was_lane ~= number and lane_of(was_lane)
    if left then add_slots_of(left, 1) end
  end
  local known = job_of(id)
  if known then
    if how == 'hint' then return 'known' end
    local was_lane, was_score = string.match(known, '^(%S+) (%S+)')
    if was_lane == number and was_score == score and how ~= 'check' then
      set_job(id, number, score, token)
      return 'known'
    end
    remove(id)
  end
  if not lane then
    want_more(number)
    return 'unknown'
  end
  if not is_before_bound(tonumber(score), id, lane) then return 'beyond' end
  lane.size = size_of(lane) + 1
  gather('ZADD', lane.home, score, id)
  set_job(id, number, score, token)
  touched[number] = true
  if lane.size > window then
    write_gathered()
    local tail = redis.call('ZRANGE', lane.home, -1, -1, 'WITHSCORES')
    remove(tail[1])
    set_lane_bound(lane, tail[2], tail[1])
    if tail[1] == id then return 'beyond' end
  end
  if lane.is_plain then
    copy(id, lane.kind, score)
    ring(lane.kind, is_lone and table.concat({ generation, id, number, token }, ' '))
  else
    ring_limited(lane, 1)
  end
  return 'placed'
end
