-- Move limits to their next era, see slot_groups: what is used, and of how many, stays as it is. Never waits: a limit of which another transaction holds
-- a slot group, or of which one is just being made, is passed over. Returns the limits that have moved.
create function longshore.renew_slot_groups(p_limits int[]) returns int[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in lock_jobs.
set lock_timeout = '10ms'
-- A few slot groups of each limit, by their key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_ids int[];
  v_held int[];
begin
  select coalesce(array_agg(h.id), '{}'), array_agg(h.groups) into v_ids, v_held
  from (
    select k.id, count(g.number) as groups
    from (select distinct k.id from unnest(p_limits) as k(id) order by k.id) k
    cross join lateral (
      select g.number from longshore.slot_groups g
      where g.limit_id = k.id
        and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)
      order by g.number
      /* guard: group-locks */ for update skip locked /* end group-locks */
    ) g
    group by k.id
  ) h;
  -- A later statement: it sees what the last holder of each group has done.
  v_ids := array(
    select h.id from unnest(v_ids, v_held) as h(id, groups)
    where /* guard: all-groups */ h.groups = (
      select count(*) from longshore.slot_groups g
      where g.limit_id = h.id
        and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = h.id order by e.era desc limit 1)
      ) /* end all-groups */);
  update longshore.slot_groups g set era = g.era + 1
  from unnest(v_ids) as k(id)
  where g.limit_id = k.id
    and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1);
  return v_ids;
end
$$;
