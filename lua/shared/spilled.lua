-- Lanes whose jobs are left to Postgres for a while, see `take`.

--- Lanes that were left to Postgres are wanted here again.
local function unspill()
  for _, number in ipairs(redis.call('SMEMBERS', prefix .. 'spilled')) do
    redis.call('HDEL', prefix .. 'lane-facts:' .. number, 'spilled')
    if lanes[number] then lanes[number].is_spilled = nil end
    want_more(number)
  end
  redis.call('DEL', prefix .. 'spilled')
end
