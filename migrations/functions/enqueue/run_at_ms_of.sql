-- As run_at_of, in milliseconds since 1970. Planners see through it: the index jobs_scheduled is on what it returns.
-- public: producer, worker, relay, reader
create function longshore.run_at_ms_of(p_score bigint) returns bigint
language sql immutable strict parallel safe
return p_score & 4398046511103;
