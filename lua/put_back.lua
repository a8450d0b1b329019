#!lua
--- put_back: jobs that a worker took and Postgres did not hand over go home, with the place that Postgres told. A job that was
--- refused because its limit is full keeps the slot that Redis gave it: Redis had counted one too many.
--- @key root
--- @use bells copies jobs finish
--- @arg generation   {text}
--- @arg worker       {int}
--- @items           id {text}, answer {busy|full|moved|unclear}, lane {int?}, score {int?}, token {int?}; without the last three: as it was when it was taken, since the claim's answer is not known
--- @returns         {code, bells}
if not generation or generation ~= arg.generation then return { 'LOST', 0 } end
look_up(5)
for at = items, #ARGV, 5 do
  local id = ARGV[at]
  local taker, number, score, token = string.match(taken_of(id) or '', '^(%S+) %S+ (%S+) (%S+) (%S+)')
  -- If it is not there, the relay or somebody else knows better.
  if taker == arg.worker then
    forget_taken(id)
    local lane = lane_of(number)
    if lane and ARGV[at + 1] ~= 'full' then add_slots_of(lane, 1) end
    if ARGV[at + 2] == '' or ARGV[at + 3] == '' or ARGV[at + 4] == '' then
      place(id, number, score, token, 'hint')
    else
      place(id, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], 'hint')
    end
  end
end
finish()
return { 'OK', bells }
