-- The keys that a constraint tag names.
-- public: producer, worker, relay, reader
create function longshore.constraint_keys(p_tag text) returns text[]
language sql immutable strict parallel safe
return array(select split_part(pair, '=', 1) from string_to_table(substr(p_tag, 3), ',') as pair);
