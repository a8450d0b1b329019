-- As score, with the run time in milliseconds since 1970.
create function longshore.score_ms(p_priority int, p_run_at_ms bigint) returns bigint
language sql immutable strict parallel safe
return ((2047 - p_priority)::bigint << 42) | p_run_at_ms;
