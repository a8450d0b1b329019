-- Workers that are idle are woken, each once.

local bells = 0
local idle, has_read_idle, is_rung = {}, false, {}
-- By kind: how many of the idle have been looked at, all in vain or rung.
local looked_at = {}

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

--- Wake the worker that has been idle longest of those that may serve the kind. Each is rung once, and none while it works. Where
--- no lane goes on in Postgres, `offer` is all that it may run, and the bell tells of it.
local function ring(kind, offer)
  local at = (looked_at[kind] or 0) + 1
  while idle_worker(at) do
    local worker = idle[at]
    looked_at[kind] = at
    if not is_rung[worker] and redis.call('SISMEMBER', prefix .. 'workers-of:' .. kind, worker) == 1 then
      is_rung[worker] = true
      redis.call('ZREM', prefix .. 'idle', worker)
      redis.call('ZADD', prefix .. 'rung', math.floor(now() / 1000), worker)
      local is_all = offer and redis.call('EXISTS', prefix .. 'bounded') == 0
      redis.call('PUBLISH', deployment .. ':bell:' .. worker, is_all and offer or '')
      bells = bells + 1
      return true
    end
    at = at + 1
  end
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

