#!lua flags=no-writes
--- lane_page: a stretch of a lane, for the audit.
--- @key root
--- @arg generation   {text}
--- @arg lane         {int}
--- @arg fromScore    {place}
--- @arg fromId       {any}
--- @arg most         {int}
--- @returns          {code, ids, scores, bound score, bound id}; code OK | LOST | UNKNOWN
if not generation or generation ~= arg.generation then return { 'LOST' } end
local lane = lane_of(arg.lane)
if not lane then return { 'UNKNOWN' } end
-- As many as a batch holds may share a score: find the place among them.
local first = redis.call('ZCOUNT', lane.home, '-inf', '(' .. arg.fromScore)
local last = first + redis.call('ZCOUNT', lane.home, arg.fromScore, arg.fromScore)
while first < last do
  local middle = math.floor((first + last) / 2)
  if redis.call('ZRANGE', lane.home, middle, middle)[1] < arg.fromId then first = middle + 1 else last = middle end
end
local page = redis.call('ZRANGE', lane.home, first, first + arg.most - 1, 'WITHSCORES')
local ids, scores = {}, {}
for at = 1, #page, 2 do
  ids[#ids + 1] = page[at]
  scores[#scores + 1] = page[at + 1]
end
return { 'OK', ids, scores, lane.bound_score or '', lane.bound_id or '' }
