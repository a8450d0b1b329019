#!lua flags=allow-oom
--- remove: jobs are not ready any more. A step of the relay. Touches only the queues that hold a copy.
--- @key root
--- @use bells copies jobs finish
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @items           id {text}
--- @returns         {code, removed}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0 } end
look_up(1)
local removed = 0
for at = items, #ARGV do
  if taken_of(ARGV[at]) then forget_taken(ARGV[at]) end
  if remove(ARGV[at]) then removed = removed + 1 end
end
finish()
return done({ 'OK', removed })
