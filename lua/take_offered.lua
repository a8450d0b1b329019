#!lua flags=allow-oom
--- take_offered: a worker claims the job that its bell told of, and takes it here meanwhile. If that was all that it may run, and it
--- wants more, it is idle from here on.
--- @key root
--- @use takes
--- @arg generation  {text} in which it registered
--- @arg worker      {int}
--- @arg limit       {int} how many it wants, with this one
--- @arg running     {int} how many it runs
--- @arg id          {text} of the job
--- @arg token       {int} that it was offered with
--- @items           id {text}, of what it took earlier and claimed, or found gone
--- @returns         {code, 1 where there may be more for it}; code OK | LOST (another generation) | UNKNOWN (it is not registered)
if not generation or generation ~= arg.generation then return { 'LOST' } end
if redis.call('HEXISTS', prefix .. 'workers', arg.worker) == 0 then return { 'UNKNOWN' } end
redis.call('ZREM', prefix .. 'rung', arg.worker)
tell_running()
acknowledge()

local record = redis.call('HGET', jobs_key, arg.id)
local number, token = string.match(record or '', '^(%S+) %S+ (%S+)')
-- Not what is ready again since.
if token == arg.token then
  redis.call('ZREM', prefix .. 'lane:' .. number, arg.id)
  redis.call('HDEL', jobs_key, arg.id)
  each(redis.call('HGET', held_key, arg.id), function(holder)
    redis.call('ZREM', prefix .. 'queue:' .. holder, arg.id)
    add_load(holder, -1)
  end)
  redis.call('HDEL', held_key, arg.id)
  redis.call('HSET', taken_key, arg.id, taker() .. record)
  touched[number] = true
end
local is_bounded = redis.call('EXISTS', prefix .. 'bounded') == 1
if is_bounded then tell_low() end

-- Lanes under limits, and those that go on in Postgres, are for a take to look at.
local kinds = redis.call('HMGET', me.key, 'plain', 'limited')
local has_more = is_bounded or string.find(kinds[2] or '', '%d')
each(kinds[1], function(kind) has_more = has_more or redis.call('EXISTS', prefix .. 'lane:' .. kind) == 1 end)
if tonumber(arg.limit) > 1 and not has_more then
  if me.bound_score then set_worker_bound(me, nil) end
  redis.call('ZADD', prefix .. 'idle', 'NX', string.format('%.0f', now()), me.id)
end
return { 'OK', has_more and 1 or 0 }
