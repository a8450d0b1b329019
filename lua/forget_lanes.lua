#!lua flags=allow-oom
--- forget_lanes: Postgres does not have these lanes any more, so nothing of them can be ready. A step of the relay.
--- @key root
--- @use bells copies jobs finish forgets
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @items           lane {int}
--- @returns         {code}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused } end
for at = items, #ARGV do forget_lane(ARGV[at]) end
finish()
return done({ 'OK' })
