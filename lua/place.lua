#!lua
--- place: make ready jobs known, and bring those that are known up to date. A step of the relay.
--- @key root
--- @use bells copies jobs finish
--- @arg epoch       {int} term of the leader
--- @arg generation  {text} of the content it knows
--- @arg seq         {int} number of this step
--- @arg how         {relay|check|audit} check: also what seems to be there; audit: also what was taken and never claimed
--- @items           id {text}, lane {int}, score {int}, token {int}
--- @returns         {code, bells, placed, lanes with a bound, its scores, its ids}
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0, 0 } end
look_up(4)
is_lone = #ARGV == items + 3
local placed = 0
for at = items, #ARGV, 4 do
  if place(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], arg.how) == 'placed' then placed = placed + 1 end
end
finish()
-- So that the relay need not read what lies behind.
local bounded, scores, ids = {}, {}, {}
for number, lane in pairs(lanes) do
  if lane and lane.bound_score then
    bounded[#bounded + 1], scores[#scores + 1], ids[#ids + 1] = number, lane.bound_score, lane.bound_id
  end
end
return done({ 'OK', bells, placed, bounded, scores, ids })
