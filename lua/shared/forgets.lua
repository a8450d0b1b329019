-- What Postgres does not have any more goes: lanes, the kinds that have none left, and limits that no lane is under.

local function remove_from_list(worker, field, number)
  local key = prefix .. 'worker:' .. worker
  local kept = {}
  each(redis.call('HGET', key, field), function(item)
    if item ~= number then kept[#kept + 1] = item end
  end)
  redis.call('HSET', key, field, table.concat(kept, ','))
end

--- `member` of `under` a limit goes, and with the last of them the limit.
local function leave_limit(limit, member)
  local under = prefix .. 'under:' .. limit
  redis.call('SREM', under, member)
  if redis.call('EXISTS', under) == 1 then return end
  redis.call('HDEL', prefix .. 'slots', limit)
  redis.call('HDEL', prefix .. 'turns', limit)
  redis.call('SREM', full_key, limit)
  free_slots[limit], free_before[limit], free_in_heads[limit] = nil, nil, nil
end

local function forget_kind(lane)
  local kind = lane.kind
  for _, worker in ipairs(eligible_for(kind)) do
    remove_from_list(worker, 'plain', kind)
    remove_from_list(worker, 'limited', kind)
  end
  eligible[kind] = nil
  redis.call('HDEL', prefix .. 'kinds', kind)
  redis.call('HDEL', prefix .. 'kind-sizes', kind)
  redis.call('DEL', prefix .. 'workers-of:' .. kind, prefix .. 'heads:' .. kind)
  if lane.limits[1] and lane.limits[1] ~= lane.key_limit then leave_limit(lane.limits[1], kind) end
end

--- Answers whether it had jobs here, or went on in Postgres.
local function forget_lane(number)
  redis.call('SREM', prefix .. 'low', number)
  local lane = lane_of(number)
  if not lane then return false end
  local ids = redis.call('ZRANGE', lane.home, 0, -1)
  for _, id in ipairs(ids) do remove(id) end
  if lane.head then redis.call('ZREM', prefix .. 'heads:' .. lane.kind, lane.head .. ' ' .. number) end
  for _, name in ipairs({ 'lanes', 'bounded', 'spilled' }) do redis.call('SREM', prefix .. name, number) end
  redis.call('DEL', lane.home, lane.facts)
  if lane.key_limit then leave_limit(lane.key_limit, number) end
  if redis.call('HINCRBY', prefix .. 'kind-sizes', lane.kind, -1) == 0 then forget_kind(lane) end
  lanes[number], touched[number] = false, nil
  return #ids > 0 or (lane.bound_score and true or false)
end
