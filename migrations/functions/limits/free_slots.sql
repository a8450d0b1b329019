-- Free the slots that runs held: one entry for each job, with its lane and the numbers of its slot groups (null: none).
-- Part of the transaction that ends the run. Returns the limits; whoever calls opens their lanes when it has taken what
-- it wants for itself (see reopen).
create function longshore.free_slots(p_lanes int[], p_slots smallint[], p_key_slots smallint[]) returns int[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A few lanes, limits and slot groups, each by its key, however many there are.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_limits int[];
  v_numbers smallint[];
  v_counts int[];
begin
  with held as materialized (
    select h.lane, h.slot, h.key_slot, count(*)::int as jobs
    from unnest(p_lanes, p_slots, p_key_slots) as h(lane, slot, key_slot)
    group by 1, 2, 3
  ), freed as (
    select k.id, h.slot as number, h.jobs
    from held h
    join longshore.lanes l on l.id = h.lane
    join longshore.limits k on k.task = l.task and k.key = ''
    where h.slot is not null
    union all
    select k.id, h.key_slot, h.jobs
    from held h
    join longshore.lanes l on l.id = h.lane
    join longshore.limits k on k.task = l.task and k.key = l.concurrency_key and k.key <> ''
    where h.key_slot is not null
  ), counted as (
    select f.id, f.number, sum(f.jobs)::int as jobs from freed f group by 1, 2
  )
  select array_agg(c.id order by c.id, c.number), array_agg(c.number order by c.id, c.number),
    array_agg(c.jobs order by c.id, c.number)
  into v_limits, v_numbers, v_counts
  from counted c;

  perform longshore.give_back_slots(v_limits, v_numbers, v_counts);
  return v_limits;
end
$$;
