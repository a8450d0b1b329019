-- Nothing is left in Redis of this generation of a queue: no worker serves it and it has no ready jobs. Nothing happens if the queue has
-- a later one by now, or if another leads.
-- public: relay
create function longshore.note_ended(p_queue text, p_generation text, p_holder text, p_secret bytea) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  delete from longshore.relayed r
  where r.queue = p_queue /* guard: same-generation */ and r.generation = p_generation /* end same-generation */
    and longshore.is_leader(p_holder, p_secret);
end
$$;
