#!lua flags=allow-oom
--- end_generation: no worker serves the queue and it has no ready jobs: nothing here is to be gone on with. A step of the relay; what
--- the generation leaves is dropped afterwards.
--- @key root
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @returns          {code}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused } end
redis.call('DEL', root)
return { 'OK' }
