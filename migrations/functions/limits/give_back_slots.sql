-- Lower the counts of slot groups: of each limit the number of the group, and by how many. Ascending by limit and number. Waits for transactions
-- that hold one of them, which commit soon. So that no two wait for each other, they are locked in order, and the caller holds either all
-- of them (it has taken these slots itself) or no slot group at all.
create function longshore.give_back_slots(p_limits int[], p_numbers smallint[], p_counts int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- Settle's own lock_timeout would end the whole call in a crowd.
set lock_timeout = '5s'
-- By their key, however many there are.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
as $$
begin
  perform from longshore.slot_groups g
  join unnest(p_limits, p_numbers) as f(id, number) on g.limit_id = f.id and g.number = f.number
  /* guard: order */ order by g.limit_id, g.number /* end order */
  for update of g;
  update longshore.slot_groups g set used = g.used - f.slots
  from unnest(p_limits, p_numbers, p_counts) as f(id, number, slots)
  where g.limit_id = f.id and g.number = f.number;
end
$$;
