-- What a worker tells with each take: how many jobs it runs, and what became of those that it took.

local me = worker_of(arg.worker)

local function tell_running()
  local running = tonumber(arg.running)
  if running == me.running then return end
  add_load(me.id, running - me.running)
  me.running = running
  redis.call('HSET', me.key, 'running', arg.running)
end

local function acknowledge()
  local acknowledged, mine = {}, me.id .. ' '
  for first = items, #ARGV, 1000 do
    local last = math.min(first + 999, #ARGV)
    local records = redis.call('HMGET', taken_key, unpack(ARGV, first, last))
    for at = first, last do
      local record = records[at - first + 1]
      -- Not if somebody else has taken it since.
      if record and string.sub(record, 1, #mine) == mine then acknowledged[#acknowledged + 1] = ARGV[at] end
    end
  end
  bulk('HDEL', taken_key, acknowledged)
end

--- What `taken` says of a job that was in `jobs`, without that.
local function taker() return me.id .. ' ' .. string.format('%.0f', math.floor(now() / 1000)) .. ' ' end
