#!lua flags=allow-oom
--- beat: the relay leads and this content is what it knows: tell the workers so. Also looks for what was lost: jobs that wait
--- beside idle workers (a bell got lost, or went to a worker that left), jobs that were taken and never claimed, limits without a
--- free slot.
--- @key root
--- @use bells finish
--- @arg epoch
--- @arg generation
--- @arg seq          the last step
--- @arg queue        its name, for those who listen
--- @arg overdueMs    after which a job that was taken is looked after
--- @returns          {code, overdue ids, limits without a slot, their turns, lanes to read on in, jobs in lanes, taken, bells}
if generation and tonumber(arg.epoch) < tonumber(state[2]) then return { 'FENCED' } end
if not generation or generation ~= arg.generation or tonumber(state[3]) ~= tonumber(arg.seq) then return { 'LOST' } end
redis.call('PUBLISH', deployment .. ':beat', generation .. ' ' .. arg.queue)
local overdue, now_ms = {}, now() / 1000
local taken = redis.call('HGETALL', taken_key)
for at = 1, #taken, 2 do
  local since = string.match(taken[at + 1], '^%S+ (%S+)')
  if since and #overdue < 1000 and now_ms - tonumber(since) > tonumber(arg.overdueMs) then overdue[#overdue + 1] = taken[at] end
end
local full, turns = {}, {}
local slots = redis.call('HGETALL', prefix .. 'slots')
for at = 1, #slots, 2 do
  if #full < 1000 and tonumber(slots[at + 1]) <= 0 then
    full[#full + 1] = slots[at]
    turns[#turns + 1] = redis.call('HGET', prefix .. 'turns', slots[at]) or '0'
  end
end
if redis.call('EXISTS', prefix .. 'idle') == 1 then
  for _, kind in ipairs(redis.call('HKEYS', prefix .. 'kinds')) do
    local lane = lane_of(kind)
    if lane and lane.is_plain and redis.call('EXISTS', lane.home) == 1 then ring(kind) end
    local head = redis.call('ZRANGE', prefix .. 'heads:' .. kind, 0, 0)[1]
    if head then ring_limited(lane_at_head(head), 1) end
  end
end
return { 'OK', overdue, full, turns, redis.call('SMEMBERS', prefix .. 'low'), redis.call('HLEN', jobs_key) - 1, #taken / 2 - 1, bells }
