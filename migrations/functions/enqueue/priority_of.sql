-- The priority of a job, of its score.
-- public: producer, worker, relay, reader
create function longshore.priority_of(p_score bigint) returns int
language sql immutable strict parallel safe
return 2047 - (p_score >> 42)::int;
