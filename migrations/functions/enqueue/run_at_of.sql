create function longshore.run_at_of(p_score bigint) returns timestamptz
language sql immutable strict parallel safe
return to_timestamp((p_score & 4398046511103) / 1000.0);
