#!lua
--- register: a worker takes part from now on, or has other tags or properties than before. Its queue begins empty; if its lanes
--- hold jobs, its first take finds them there.
--- @key root
--- @use bells copies kinds
--- @arg generation   {text}
--- @arg worker       {int}
--- @arg facts       {any} JSON: {tasks, tags, constraintTags}
--- @returns         {code}
if not generation or generation ~= arg.generation then return { 'LOST' } end
local facts = cjson.decode(arg.facts)
local alone = disconnect(arg.worker)
redis.call('HSET', prefix .. 'workers', arg.worker, arg.facts)
local kinds = redis.call('HGETALL', prefix .. 'kinds')
local has_jobs = false
for at = 1, #kinds, 2 do
  local kind = cjson.decode(kinds[at + 1])
  if matches(facts, kind) then
    connect(arg.worker, kinds[at], kind)
    if kind.isPlain and redis.call('EXISTS', prefix .. 'lane:' .. kinds[at]) == 1 then has_jobs = true end
  end
end
eligible, workers, open_for = {}, {}, {}
local me = worker_of(arg.worker)
redis.call('ZADD', open_key, string.format('%.0f', rank_of(me)), me.id)
if has_jobs then set_worker_bound(me, '-1', '') end
offer_again(alone)
write_gathered()
return { 'OK' }
