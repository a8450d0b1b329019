#!lua flags=allow-oom
--- unregister: a worker has left, or is dead. What stood in its queue is offered to the others that may run it, or waits in its
--- lane. What it took and did not claim is told, for the relay to look after.
--- @key root
--- @use bells copies kinds spilled
--- @arg worker       {int}
--- @returns         {code, ids it took}
if not generation then return { 'LOST', {} } end
offer_again(disconnect(arg.worker))
-- It may have been the one that worked through them.
unspill()
write_gathered()
local taken = redis.call('HGETALL', taken_key)
local left = {}
for at = 1, #taken, 2 do
  if string.match(taken[at + 1], '^(%S+)') == arg.worker then left[#left + 1] = taken[at] end
end
return { 'OK', left }
