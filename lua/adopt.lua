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
if is_over(arg.epoch) then return { 'FENCED', '0', state[2] } end
if generation ~= arg.generation or tonumber(state[3]) < tonumber(arg.seq) then return { 'LOST', '0', '0' } end
-- The last step failed half-way.
if state[8] and state[8] ~= state[3] then return { 'LOST', '0', '0' } end
redis.call('HSET', root, 'epoch', arg.epoch, 'depth', arg.depth, 'window', arg.window)
return { 'OK', state[3], arg.epoch }
