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
declare
  v_rows tid[];
  v_counts int[];
begin
  select array_agg(g.row), array_agg(f.slots[array_position(f.numbers, g.number)]) into v_rows, v_counts
  from (
    select f.id, array_agg(f.number) as numbers, array_agg(f.slots) as slots
    from unnest(p_limits, p_numbers, p_counts) as f(id, number, slots)
    group by f.id
    /* guard: order */ order by f.id /* end order */
  ) f
  cross join lateral (
    select g.ctid as row, g.number from longshore.slot_groups g
    where g.limit_id = f.id and g.number = any (f.numbers)
      and g.era /* guard: or-later */ >= /* end or-later */ (
        select e.era from longshore.slot_groups e where e.limit_id = f.id order by e.era desc limit 1) /* point: reading */
    order by g.number
    for update
  ) g;
  update longshore.slot_groups g set used = g.used - h.slots
  from unnest(v_rows, v_counts) as h(row, slots) where g.ctid = h.row;
end
$$;
