#!lua
--- begin_generation: forget everything that Redis holds of this queue and begin anew: no lane is read in. A step of the relay.
--- @key root
--- @arg epoch        {int}
--- @arg generation   {text} a new one
--- @arg width        {int} to how many workers a job is copied; 0: to all
--- @arg strategy     {least-queue|round-robin|random} which ones
--- @arg depth        {int} of a worker's queue
--- @arg window       {int} of a lane
--- @returns          {code, epoch that refused it, or the generation before}
if generation and is_over(arg.epoch) then return { 'FENCED', state[2] } end
redis.call('DEL', root)
redis.call('HSET', root, 'generation', arg.generation, 'epoch', arg.epoch, 'seq', '0', 'width', arg.width,
  'strategy', arg.strategy, 'depth', arg.depth, 'window', arg.window)
for _, name in ipairs({ 'jobs', 'held', 'taken' }) do make_table(root .. ':' .. arg.generation .. ':' .. name) end
return { 'OK', generation ~= arg.generation and generation or '' }
