-- A worker has room for p_wanted more jobs, and limits keep jobs of its lanes from it. Note that, so that claims which take slots of these
-- limits leave it its share, see leave_to_waiters. Only for tasks whose jobs stand in several lanes, where another worker may be
-- unable to run what this one can: where all serve the same lane, every claim takes its best job anyway.
create function longshore.wait_for_limits(p_worker int, p_wanted int) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A few lanes, each by its key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  -- A claim never waits: not for the other call of the same worker either.
  if not pg_try_advisory_xact_lock(hashtext('longshore.waiter'), p_worker) then
    return;
  end if;
  insert into longshore.limit_waiters as w (lane, worker_id, task, wanted, asked_at)
  select l.lane, p_worker, l.task, p_wanted, clock_timestamp()
  from longshore.worker_lanes l
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  where l.worker_id = p_worker and l.concurrency_key = ''
    and exists (select from longshore.lanes o where o.task = l.task and o.concurrency_key = '' and o.id <> l.lane offset 0)
    and (
      k.is_full and (
        exists (select from longshore.jobs j where j.lane = l.lane and j.state = 'ready' offset 0)
        or exists (select from longshore.lane_heads h where h.parent = l.lane and h.closed_by is null offset 0))
      or exists (select from longshore.lane_heads h where h.parent = l.lane and h.closed_by > 0 offset 0))
  on conflict (lane, worker_id) do update
  set wanted = excluded.wanted, asked_at = excluded.asked_at, reserved_at = null
  -- Not with each claim.
  where w.wanted <> excluded.wanted or w.reserved_at is not null or w.asked_at < excluded.asked_at - interval '200 milliseconds';
end
$$;
