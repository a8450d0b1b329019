#!lua
--- hint: somebody who is not the relay tells of jobs that its own commit made ready. Adds what is absent; may be lost.
--- @key root
--- @use bells copies jobs finish
--- @items           id {text}, lane {int}, score {int}, token {int}
--- @returns         {code, bells, placed, beyond: how many stay in Postgres, where their lane goes on}
if not generation then return { 'LOST', 0, 0, 0 } end
look_up(4)
is_lone = #ARGV == items + 3
local placed, beyond = 0, 0
for at = items, #ARGV, 4 do
  local lane = lane_of(ARGV[at + 1])
  -- The relay has yet to read this lane in, and will.
  local answer = lane and place(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], 'hint')
  if answer == 'placed' then placed = placed + 1 end
  if answer == 'beyond' then beyond = beyond + 1 end
end
finish()
return { 'OK', bells, placed, beyond }
