#!lua flags=no-writes
--- lane_page: a stretch of a lane, for the audit, and whether what is written down twice of it agrees.
--- @key root
--- @use kinds
--- @arg generation   {text}
--- @arg lane         {int}
--- @arg fromScore    {place}
--- @arg fromId       {any}
--- @arg most         {int}
--- @returns          {code, ids, scores, bound score, bound id, kind, limit, limit of its key, what does not agree}; code OK | LOST | UNKNOWN
if not generation or generation ~= arg.generation then return { 'LOST' } end
local lane = lane_of(arg.lane)
if not lane then return { 'UNKNOWN' } end
-- As many as a batch holds may share a score: find the place among them.
local first = redis.call('ZCOUNT', lane.home, '-inf', '(' .. arg.fromScore)
local last = first + redis.call('ZCOUNT', lane.home, arg.fromScore, arg.fromScore)
while first < last do
  local middle = math.floor((first + last) / 2)
  if redis.call('ZRANGE', lane.home, middle, middle)[1] < arg.fromId then first = middle + 1 else last = middle end
end
local page = redis.call('ZRANGE', lane.home, first, first + arg.most - 1, 'WITHSCORES')
local ids, scores = {}, {}
for at = 1, #page, 2 do
  ids[#ids + 1] = page[at]
  scores[#scores + 1] = page[at + 1]
end

local function is_in(name, member) return redis.call('SISMEMBER', prefix .. name, member) == 1 end

--- Those who serve a kind are those who match it, and each has a queue for copies, or works through its lanes.
local function find_strange_worker(kind)
  local open = {}
  for _, worker in ipairs(redis.call('ZRANGE', open_key, 0, -1)) do open[worker] = true end
  local registered = redis.call('HGETALL', prefix .. 'workers')
  for at = 1, #registered, 2 do
    local worker = registered[at]
    local serves = matches(cjson.decode(registered[at + 1]), kind)
    if serves ~= is_in('workers-of:' .. lane.kind, worker) then return worker end
    if (open[worker] or false) == (worker_of(worker).bound_value == -1) then return worker end
    local lists = redis.call('HMGET', worker_of(worker).key, 'plain', 'limited')
    for field, is_listed in pairs({ kind.isPlain and serves, kind.hasLimits and serves }) do
      local found = string.find(',' .. (lists[field] or '') .. ',', ',' .. lane.kind .. ',', 1, true)
      if is_listed and not found then return worker end
    end
  end
end

local function find_problem()
  local facts = redis.call('HGET', prefix .. 'kinds', lane.kind)
  if not facts then return 'its kind is not known' end
  if is_in('bounded', lane.number) ~= (lane.bound_score and true or false) then return 'whether it has a bound' end
  if is_in('spilled', lane.number) ~= (lane.is_spilled or false) then return 'whether it is left to Postgres' end
  if lane.bound_score and not lane.is_spilled and size_of(lane) < window / 2 and not is_in('low', lane.number) then
    return 'whether it is to be read on in'
  end
  for _, limit in ipairs(lane.limits) do
    if redis.call('HEXISTS', prefix .. 'slots', limit) == 0 then return 'whether its limit is known' end
    if not is_in('under:' .. limit, limit == lane.key_limit and lane.number or lane.kind) then return 'whether it is under its limit' end
  end
  if ids[1] then
    for _, job in ipairs(redis.call('HMGET', jobs_key, unpack(ids))) do
      if not job then return 'whether it holds a job' end
    end
  end
  if not lane.is_plain then
    local best = redis.call('ZRANGE', lane.home, 0, 0, 'WITHSCORES')
    local head = best[1] and free_of(lane.key_limit) > 0 and best[1]
    local stands = {}
    for _, member in ipairs(best[1] and redis.call('ZRANGE', prefix .. 'heads:' .. lane.kind, best[2], best[2], 'BYSCORE') or {}) do
      stands[member] = true
    end
    if (lane.head or false) ~= (head or false) or head and not stands[head .. ' ' .. lane.number] then return 'which job is its best' end
  end
  local stranger = lane.kind == lane.number and find_strange_worker(cjson.decode(facts))
  if stranger then return 'what worker ' .. stranger .. ' serves' end
  return ''
end
return {
  'OK', ids, scores, lane.bound_score or '', lane.bound_id or '',
  lane.kind, lane.limits[1] ~= lane.key_limit and lane.limits[1] or '', lane.key_limit or '', find_problem(),
}
