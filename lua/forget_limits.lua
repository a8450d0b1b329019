#!lua flags=allow-oom
--- forget_limits: Postgres does not have these limits of keys any more. The lanes under them are forgotten with them: when a job comes
--- there, or is there now, the lane is read in again, under the limit that it has by then. A step of the relay.
--- @key root
--- @use bells copies jobs finish forgets
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @items           limit {int}
--- @returns         {code}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused } end
for at = items, #ARGV do
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'under:' .. ARGV[at])) do
    local lane = lane_of(number)
    if lane and lane.key_limit == ARGV[at] and forget_lane(number) then want_more(number) end
  end
end
finish()
return done({ 'OK' })
