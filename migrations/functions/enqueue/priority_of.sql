create function longshore.priority_of(p_score bigint) returns int
language sql immutable strict parallel safe
return 2047 - (p_score >> 42)::int;
