#!lua flags=allow-oom
--- beat: the relay leads and this content is what it knows: tell the workers so. Also looks for what was lost: jobs that wait
--- beside idle workers (a bell got lost, or went to a worker that left), jobs that were taken and never claimed, limits without a
--- free slot that jobs wait for.
--- @key root
--- @use bells finish
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int} the last step
--- @arg queue        {text} its name, for those who listen
--- @arg overdueMs    {place} after which a job that was taken is looked after
--- @returns          {code, overdue ids, limits without a slot, their turns, lanes to read on in, jobs in lanes, taken, bells}
if generation and is_over(arg.epoch) then return { 'FENCED' } end
if not generation or generation ~= arg.generation or tonumber(state[3]) ~= tonumber(arg.seq) then return { 'LOST' } end
redis.call('PUBLISH', deployment .. ':beat', generation .. ' ' .. arg.queue)
local overdue, now_ms = {}, now() / 1000
local taken = redis.call('HGETALL', taken_key)
for at = 1, #taken, 2 do
  local since = string.match(taken[at + 1], '^%S+ (%S+)')
  if since and #overdue < 1000 and now_ms - tonumber(since) > tonumber(arg.overdueMs) then overdue[#overdue + 1] = taken[at] end
end
--- No job waits for the slots of a limit whose jobs all run: its count is looked at again when a job comes.
local function is_waited_for(limit)
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'under:' .. limit)) do
    local lane = lane_of(number)
    if lane and lane.key_limit == limit then
      if size_of(lane) > 0 then return true end
    elseif redis.call('EXISTS', prefix .. 'heads:' .. number) == 1 then
      return true
    end
  end
  return false
end
local full, turns = {}, {}
for _, limit in ipairs(redis.call('SRANDMEMBER', full_key, 1000)) do
  if is_waited_for(limit) then
    full[#full + 1] = limit
    turns[#turns + 1] = redis.call('HGET', prefix .. 'turns', limit) or '0'
  end
end
-- Whoever was rung and has not come for a second did not hear it, and is idle again.
for _, worker in ipairs(redis.call('ZRANGE', prefix .. 'rung', '-inf', math.floor(now_ms) - 1000, 'BYSCORE')) do
  redis.call('ZREM', prefix .. 'rung', worker)
  if redis.call('HEXISTS', prefix .. 'workers', worker) == 1 then redis.call('ZADD', prefix .. 'idle', 'NX', 0, worker) end
end
-- A job that stood first at the last beat too, beside idle workers: its bell got lost. One that came since may still be on its way.
local stood = {}
local known = redis.call('HGETALL', prefix .. 'stood')
for at = 1, #known, 2 do stood[known[at]] = known[at + 1] end
local stands = {}
local function look(kind, name, home)
  local first = redis.call('ZRANGE', home, 0, 0)[1]
  if not first then return end
  stands[#stands + 1] = name
  stands[#stands + 1] = first
  if stood[name] == first then ring(kind) end
end
if redis.call('EXISTS', prefix .. 'idle') == 1 then
  for _, kind in ipairs(redis.call('HKEYS', prefix .. 'kinds')) do
    local lane = lane_of(kind)
    if lane and lane.is_plain then look(kind, kind, lane.home) end
    local head = redis.call('ZRANGE', prefix .. 'heads:' .. kind, 0, 0)[1]
    local limited = head and lane_at_head(head)
    if limited and has_slots(limited) then look(kind, kind .. ' limited', limited.home) end
  end
  -- Lanes that are left to Postgres hold nothing here: who could work there is to look for itself.
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'spilled')) do
    local lane = lane_of(number)
    while lane and ring(lane.kind) do end
  end
end
if #known > 0 then redis.call('DEL', prefix .. 'stood') end
bulk('HSET', prefix .. 'stood', stands)
return { 'OK', overdue, full, turns, redis.call('SMEMBERS', prefix .. 'low'), redis.call('HLEN', jobs_key) - 1, #taken / 2 - 1, bells }
