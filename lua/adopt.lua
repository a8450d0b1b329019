#!lua
--- adopt: a new leader goes on with what is there, if that is what Postgres says it should be, or further.
--- @key root
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int} the last step whose outbox rows were deleted: Redis must have seen it
--- @arg depth        {int} of a worker's queue, from now on
--- @arg window       {int} of a lane, from now on
--- @returns          {code, seq, epoch}; code OK | LOST | FENCED
if not generation then return { 'LOST', '0', '0' } end
if tonumber(arg.epoch) < tonumber(state[2]) then return { 'FENCED', '0', state[2] } end
if generation ~= arg.generation or tonumber(state[3]) < tonumber(arg.seq) then return { 'LOST', '0', state[2] } end
redis.call('HSET', root, 'epoch', arg.epoch, 'depth', arg.depth, 'window', arg.window)
return { 'OK', state[3], arg.epoch }
