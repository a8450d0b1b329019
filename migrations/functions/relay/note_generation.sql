-- A new generation of a queue is about to begin in Redis. p_seq: higher than any that is read in, until note_built. False: another leads.
-- public: relay
create function longshore.note_generation(p_queue text, p_generation text, p_seq bigint, p_holder text, p_secret bytea)
returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  /* guard: only-leader */ if not longshore.is_leader(p_holder, p_secret) then
    return false;
  end if; /* end only-leader */
  insert into longshore.relayed (queue, generation, seq) values (p_queue, p_generation, p_seq)
  on conflict (queue) do update set generation = excluded.generation, seq = excluded.seq;
  return true;
end
$$;
