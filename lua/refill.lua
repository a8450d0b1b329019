#!lua
--- refill: read on in a lane: the next ready jobs from Postgres, from the lane's bound on, and the new bound. Makes the lane known
--- where it is not. A step of the relay.
--- @key root
--- @use bells copies jobs finish kinds
--- @arg epoch        {int}
--- @arg generation   {text}
--- @arg seq          {int}
--- @arg lane         {int}
--- @arg kind         {int} number of the lane without a key
--- @arg facts        {any} JSON: {task, tag, constraintTag, isPlain, hasLimits} of the kind
--- @arg limit        {int?} number of its task's limit, or nothing
--- @arg free         {int?} slots of it that are free
--- @arg keyLimit     {int?} number of its key's limit, or nothing
--- @arg keyFree      {int?} slots of it that are free
--- @arg fromScore    {place} the bound from which was read
--- @arg fromId       {any}
--- @arg boundScore   {int?} the bound from now on, or nothing: all has been read
--- @arg boundId      {any}
--- @items            id {text}, score {int}, token {int}
--- @returns          {code, bells, bound score, bound id}; code also MOVED: the bound is another one by now, read again from there;
---                   SPILLED: it is left to Postgres for now
local kind = cjson.decode(arg.facts)
local refused = fence(arg.epoch, arg.generation, arg.seq)
if refused then return { refused, 0, '', '' } end
redis.call('SREM', prefix .. 'low', arg.lane)
local lane = lane_of(arg.lane)
local was_known = lane ~= nil
if not lane then
  kind.hasLimits = kind.hasLimits or arg.lane ~= arg.kind
  add_kind(arg.kind, kind)
  local key = prefix .. 'lane-facts:' .. arg.lane
  redis.call('HSET', key, 'kind', arg.kind)
  redis.call('SADD', prefix .. 'lanes', arg.lane)
  redis.call('HINCRBY', prefix .. 'kind-sizes', arg.kind, 1)
  for _, limit in ipairs({ { 'limit', arg.limit, arg.free, arg.kind }, { 'key-limit', arg.keyLimit, arg.keyFree, arg.lane } }) do
    if limit[2] ~= '' then
      redis.call('HSET', key, limit[1], limit[2])
      redis.call('SADD', prefix .. 'under:' .. limit[2], limit[4])
      local free = limit[3] ~= '' and limit[3] or '0'
      if redis.call('HSETNX', prefix .. 'slots', limit[2], free) == 1 and tonumber(free) <= 0 then
        redis.call('SADD', full_key, limit[2])
      end
    end
  end
  lanes[arg.lane] = nil
  lane = lane_of(arg.lane)
  set_lane_bound(lane, '-1', '')
end
if lane.is_spilled then return done({ 'SPILLED', bells, lane.bound_score, lane.bound_id }) end
if lane.bound_score ~= arg.fromScore or lane.bound_id ~= arg.fromId then
  -- A hint pushed the tail out meanwhile, or there is nothing left to read.
  touched[arg.lane] = true
  finish()
  return done({ 'MOVED', bells, lane.bound_score or '', lane.bound_id or '' })
end
set_lane_bound(lane, arg.boundScore ~= '' and arg.boundScore or nil, arg.boundId)
look_up(3)
for at = items, #ARGV, 3 do place(ARGV[at], arg.lane, ARGV[at + 1], ARGV[at + 2], 'relay') end
-- Whoever is idle at the edge may go on, also with jobs of other lanes.
if was_known then
  while ring(lane.kind) do end
end
touched[arg.lane] = true
finish()
return done({ 'OK', bells, lane.bound_score or '', lane.bound_id or '' })
