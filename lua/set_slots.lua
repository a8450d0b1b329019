#!lua
--- set_slots: how many slots of a limit are free, as Postgres counts them, less those that were taken and are not claimed yet. A
--- step of the relay.
--- @key root
--- @use bells finish
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @arg limit        {int}
--- @arg free         {int}
--- @arg turn         {int?} of the count before Postgres was asked: another one by now, and nothing is done. Nothing: whatever it is
--- @returns          {code, bells}; code also CHANGED
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0 } end
if redis.call('HEXISTS', prefix .. 'slots', arg.limit) == 0 then return done({ 'OK', 0 }) end
if arg.turn ~= '' and (redis.call('HGET', prefix .. 'turns', arg.limit) or '0') ~= arg.turn then return done({ 'CHANGED', 0 }) end
local free = tonumber(arg.free)
for _, record in ipairs(redis.call('HVALS', taken_key)) do
  local number = string.match(record, '^%S+ %S+ (%S+)')
  local lane = number and lane_of(number)
  for _, limit in ipairs(lane and lane.limits or {}) do
    if limit == arg.limit then free = free - 1 end
  end
end
-- Below zero one of those is claimed by now, and was counted by both.
add_slots(arg.limit, math.max(0, free) - free_of(arg.limit))
finish()
return done({ 'OK', bells })
