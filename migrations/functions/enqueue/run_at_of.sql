-- The time at which a job is due, of its score.
-- public: producer, worker, relay, reader
create function longshore.run_at_of(p_score bigint) returns timestamptz
language sql immutable strict parallel safe
return to_timestamp((p_score & 4398046511103) / 1000.0);
