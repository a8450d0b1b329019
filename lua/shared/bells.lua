-- Workers that are idle are woken, each once.

local bells = 0
local idle, has_read_idle, is_rung = {}, false, {}
local nobody = {}

--- The idle, longest first, a page at a time.
local function idle_worker(at)
  if not idle[at] and not has_read_idle then
    -- Who was rung in this call is not there any more.
    local page = redis.call('ZRANGE', prefix .. 'idle', #idle - bells, #idle - bells + 31)
    for _, worker in ipairs(page) do idle[#idle + 1] = worker end
    has_read_idle = #page < 32
  end
  return idle[at]
end

--- Wake the worker that has been idle longest of those that may serve the kind. Each is rung once, and none while it works.
local function ring(kind)
  if nobody[kind] then return false end
  local may = {}
  if idle_worker(1) then
    for _, worker in ipairs(eligible_for(kind)) do may[worker] = true end
  end
  local at = 1
  while idle_worker(at) do
    local worker = idle[at]
    if may[worker] and not is_rung[worker] then
      is_rung[worker] = true
      redis.call('ZREM', prefix .. 'idle', worker)
      redis.call('ZADD', prefix .. 'rung', math.floor(now() / 1000), worker)
      redis.call('PUBLISH', deployment .. ':bell:' .. worker, '')
      bells = bells + 1
      return true
    end
    at = at + 1
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

