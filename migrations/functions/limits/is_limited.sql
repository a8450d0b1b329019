-- Whether jobs of this lane wait for a limit: their task's or their key's has no room.
create function longshore.is_limited(p_lane int) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from longshore.lanes l join longshore.limits k on k.task = l.task and k.key in ('', l.concurrency_key)
    where l.id = p_lane
      and k.capacity <= (select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)))
$$;
