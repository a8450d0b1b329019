-- Ring for what waits under limits of which slots were freed, as far as there is room left. Not only for those that were closed: a claim
-- that opens a limit and takes its slot again leaves it open, and workers that had found it closed still sleep.
create function longshore.ring_limits(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A few lanes and jobs, each by its key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_listeners int;
  v_most int;
  v_limit record;
begin
  select count(*) into v_listeners from (select from longshore.workers w where w.listening limit 1000) w where p_limits <> '{}';
  if v_listeners = 0 then
    return;
  end if;
  for v_limit in
    -- Without a capacity there is no limit any more.
    select k.task, k.key, coalesce(k.capacity - (
      select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
        and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)
    ), 1000) as room
    from longshore.limits k where k.id = any (p_limits)
  loop
    continue when v_limit.room <= 0;
    v_most := least(v_limit.room, v_listeners);
    if v_limit.key = '' then
      perform longshore.ring(l.id, r.jobs)
      from longshore.lanes l
      cross join lateral (
        select count(*) as jobs from (
          (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' limit v_most)
          union all
          (select from longshore.lane_heads h where h.parent = l.id and h.closed_by is null limit v_most)
        ) r
      ) r
      where l.task = v_limit.task and l.concurrency_key = '' and r.jobs > 0;
    else
      perform longshore.ring(l.id, r.jobs)
      from longshore.lanes l
      cross join lateral (
        select count(*) as jobs from (
          select from longshore.jobs j where j.lane = l.id and j.state = 'ready' limit v_most
        ) r
      ) r
      where l.task = v_limit.task and l.concurrency_key = v_limit.key and l.concurrency_key <> '' and r.jobs > 0;
    end if;
  end loop;
end
$$;
