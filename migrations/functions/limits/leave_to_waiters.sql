-- Slots of a limit go to its best jobs, whichever worker can run them. p_room slots are free, p_lanes are the lanes under this limit
-- that the claiming worker serves. Other workers have said that they have room and wait for limits of this task in other lanes
-- (limit_waiters): of the p_room best jobs, those that only they can run are left to them, and they are rung. Returns how many slots are
-- left for the caller. A slot is left to a worker that does not come for a second, no longer.
create function longshore.leave_to_waiters(p_worker int, p_limit int, p_room int, p_lanes int[]) returns int
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
  v_task text;
  v_key text;
  v_lanes int[];
  v_jobs int[];
begin
  select k.task, k.key into v_task, v_key from longshore.limits k where k.id = p_limit;
  with waiting as materialized (
    select l.id as lane, sum(w.wanted)::int as wanted
    from longshore.limit_waiters w
    join longshore.workers o on o.id = w.worker_id
    cross join lateral (
      select w.lane as id where v_key = ''
      union all
      select l.id from longshore.lanes l
      where l.task = w.task and l.concurrency_key = v_key and l.concurrency_key <> '' and l.parent = w.lane
    ) l
    where w.task = v_task and w.worker_id <> p_worker and l.id <> all (p_lanes)
      and o.dead_at is null and o.drained_at is null and o.expires_at > clock_timestamp()
      and (o.listening or w.asked_at > clock_timestamp() - interval '1 second')
      /* guard: left-for-a-second */ and (w.reserved_at is null or w.reserved_at > clock_timestamp() - interval '1 second') /* end left-for-a-second */
    group by l.id
  ), best as (
    select s.lane, s.is_own
    from (
      select w.lane, least(w.wanted, p_room) as most, false as is_own from waiting w
      union all
      select o.lane, p_room, true from unnest(p_lanes) as o(lane) where exists (select from waiting)
    ) s
    cross join lateral (
      (select j.score, j.id from longshore.jobs j
        where j.lane = s.lane and j.state = 'ready' order by j.score, j.id limit s.most)
      union all
      -- Lanes with keys below it.
      (select h.score, h.job_id from longshore.lane_heads h
        where h.parent = s.lane and h.closed_by is null order by h.score, h.job_id limit s.most)
    ) j
    order by j.score, j.id
    limit p_room
  )
  select array_agg(b.lane), array_agg(b.jobs) into v_lanes, v_jobs
  from (select b.lane, count(*)::int as jobs from best b where not b.is_own group by b.lane) b;
  if v_lanes is null then
    -- Forget those that wait for nothing any more.
    delete from longshore.limit_waiters w
    where w.ctid = any (array(
      select w.ctid from longshore.limit_waiters w
      where w.task = v_task and w.worker_id <> p_worker and w.asked_at < clock_timestamp() - interval '1 second'
        and not exists (select from longshore.jobs j where j.lane = w.lane and j.state = 'ready' offset 0)
        and not exists (select from longshore.lane_heads h where h.parent = w.lane offset 0)
      for update skip locked));
    return p_room;
  end if;
  update longshore.limit_waiters w set reserved_at = clock_timestamp()
  where w.ctid = any (array(
    select w.ctid from longshore.limit_waiters w
    where w.task = v_task and w.worker_id <> p_worker and w.reserved_at is null and w.lane = any (array(
      select case when v_key = '' then l.id else l.parent end from longshore.lanes l where l.id = any (v_lanes)))
    for update skip locked));
  perform longshore.ring(s.lane, s.jobs) from unnest(v_lanes, v_jobs) as s(lane, jobs);
  return p_room - (select sum(s.jobs)::int from unnest(v_jobs) as s(jobs));
end
$$;
