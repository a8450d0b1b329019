#!lua
--- place: make ready jobs known, and bring those that are known up to date. A step of the relay.
--- @key root
--- @use bells copies jobs finish
--- @arg epoch       term of the leader
--- @arg generation  of the content it knows
--- @arg seq         number of this step
--- @arg how         relay | audit (also what was taken and never claimed)
--- @items           id, lane, score, token
--- @returns         {code, bells, placed}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0, 0 } end
look_up(4)
local placed = 0
for at = items, #ARGV, 4 do
  if place(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], arg.how) == 'placed' then placed = placed + 1 end
end
finish()
return { 'OK', bells, placed }
