-- All lanes of a queue have been read into Redis by this step. Nothing happens if another leads.
-- public: relay
create function longshore.note_built(p_queue text, p_generation text, p_seq bigint, p_holder text, p_secret bytea) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update longshore.relayed r set seq = p_seq
  where r.queue = p_queue and r.generation = p_generation and longshore.is_leader(p_holder, p_secret);
end
$$;
