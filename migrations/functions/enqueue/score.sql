-- The order of jobs as one number, the same in both stores: best first is lowest first. 11 bits of
-- 2047 - priority above 42 bits of run_at in milliseconds, so that a double holds it exactly.
-- public: producer, worker, relay, reader
create function longshore.score(p_priority int, p_run_at timestamptz) returns bigint
language sql immutable strict parallel safe
return ((2047 - p_priority)::bigint << 42) | floor(extract(epoch from p_run_at) * 1000)::bigint;
