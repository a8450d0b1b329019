#!lua flags=no-writes
--- lane_page: a stretch of a lane, for the audit.
--- @key root
--- @arg generation
--- @arg lane
--- @arg fromScore
--- @arg fromId
--- @arg most
--- @returns          {code, ids, scores, bound score, bound id}; code OK | LOST | UNKNOWN
if not generation or generation ~= arg.generation then return { 'LOST' } end
local lane = lane_of(arg.lane)
if not lane then return { 'UNKNOWN' } end
local most = tonumber(arg.most)
local page = redis.call('ZRANGE', lane.home, arg.fromScore, '+inf', 'BYSCORE', 'LIMIT', 0, most + 1000, 'WITHSCORES')
local ids, scores = {}, {}
for at = 1, #page, 2 do
  if #ids < most and not before(page[at + 1], page[at], arg.fromScore, arg.fromId) then
    ids[#ids + 1] = page[at]
    scores[#scores + 1] = page[at + 1]
  end
end
return { 'OK', ids, scores, lane.bound_score or '', lane.bound_id or '' }
