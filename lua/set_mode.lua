#!lua
--- set_mode: copies go to other workers from now on. Queues are emptied: they fill by the new rule. A step of the relay.
--- @key root
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @arg width        {int}
--- @arg strategy     {least-queue|round-robin|random}
--- @returns          {code, changed 0 | 1}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0 } end
if state[4] == arg.width and strategy == arg.strategy then return done({ 'OK', 0 }) end
redis.call('HSET', root, 'width', arg.width, 'strategy', arg.strategy)
width, strategy = tonumber(arg.width), arg.strategy
-- At most the depth of every worker's queue.
for _, worker in ipairs(redis.call('HKEYS', prefix .. 'workers')) do
  local me = worker_of(worker)
  redis.call('DEL', me.queue)
  set_worker_bound(me, '-1', '')
end
redis.call('DEL', held_key)
make_table(held_key)
return done({ 'OK', 1 })
