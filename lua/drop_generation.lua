#!lua flags=allow-oom
--- drop_generation: remove what an earlier generation left behind, a piece at a time.
--- @key root
--- @arg generation   {text} not the present one
--- @arg most         {int} lanes and workers in one call
--- @returns          {code, left 0 | 1}
if generation == arg.generation then return { 'OK', 0 } end
local old = root .. ':' .. arg.generation .. ':'
local left = tonumber(arg.most)
local function drop(index, names)
  for _, number in ipairs(index) do
    for _, name in ipairs(names) do redis.call('UNLINK', old .. name .. number) end
    left = left - 1
  end
end
--- Whatever stands there instead: it goes as well.
local function listed(...)
  local names = redis.pcall(...)
  return names.err and {} or names
end
local lanes_left = listed('SPOP', old .. 'lanes', left)
drop(lanes_left, { 'lane:', 'lane-facts:', 'heads:', 'workers-of:' })
if #lanes_left == 0 then
  drop(listed('HKEYS', old .. 'workers'), { 'queue:', 'worker:' })
  drop(listed('HKEYS', old .. 'slots'), { 'under:' })
  drop(listed('HKEYS', old .. 'kinds'), { 'heads:', 'workers-of:' })
  for _, name in ipairs({ 'jobs', 'held', 'taken', 'slots', 'turns', 'low', 'idle', 'rung', 'open', 'workers', 'kinds', 'kind-sizes', 'lanes', 'bounded', 'stood', 'spilled', 'full' }) do
    redis.call('UNLINK', old .. name)
  end
  return { 'OK', 0 }
end
return { 'OK', 1 }
