-- Why a group that has not ended need not move now; null when nothing excuses it. One job is enough: `running` (its worker is alive),
-- `due later`, `halted` (its workflow was stopped), `turn` (another job of its workflow goes first), `no worker` (that is alive and
-- may run it), `limit` (is full), `in line` (jobs of others go first), `busy` (every worker that may run it runs something).
--
-- A job that waits for the turn of another waiting job has the excuse of that job's group. So groups that wait for each other's
-- turns have none.
create function longshore.why_group_is_idle(p_group uuid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_groups uuid[];
  v_lane record;
  v_workers int[];
begin
  v_groups := array(
    with recursive reached(id) as (
      select p_group
      /* guard: follow-turns */ union
      select t.group_id
      from reached r
      cross join lateral (
        select j.workflow from longshore.jobs j where j.group_id = r.id and j.has_turn is false offset 0) j
      cross join lateral (
        select t.group_id from longshore.jobs t where t.workflow = j.workflow and t.has_turn and t.state = 'waiting' offset 0) t
      where t.group_id is not null /* end follow-turns */
    )
    select r.id from reached r);
  if exists (
    select from longshore.jobs j join longshore.workers w on w.id = j.worker_id
    where j.group_id = any (v_groups) and j.state = 'running' and w.expires_at > clock_timestamp() and w.dead_at is null
  ) then
    return 'running';
  end if;
  if exists (
    select from longshore.jobs j
    where j.group_id = any (v_groups) and j.state = 'scheduled'
      and longshore.run_at_ms_of(j.score) > extract(epoch from clock_timestamp()) * 1000
  ) then
    return 'due later';
  end if;
  if exists (
    select from longshore.jobs j join longshore.workflows w on w.id = j.workflow
    where j.group_id = any (v_groups) and j.has_turn is false and w.halted_by is not null
  ) then
    return 'halted';
  end if;
  if exists (
    select from longshore.jobs j
    where j.group_id = any (v_groups) and j.has_turn is false and exists (
      select from longshore.jobs t
      where t.workflow = j.workflow and t.has_turn and t.state <> 'waiting'
        and (t.group_id is null or t.group_id <> all (v_groups)) offset 0)
  ) then
    return 'turn';
  end if;

  for v_lane in
    select distinct on (j.lane) j.lane, j.score, j.id from longshore.jobs j
    where j.group_id = any (v_groups) and j.state = 'ready' order by j.lane, j.score, j.id
  loop
    v_workers := array(select longshore.eligible_workers(v_lane.lane));
    if v_workers = '{}' then
      return 'no worker';
    end if;
    if longshore.is_limited(v_lane.lane) then
      return 'limit';
    end if;
    if exists (
      select from longshore.lanes l
      where l.concurrency_key = ''
        and exists (
          select from longshore.worker_lanes w where w.lane = l.id and w.worker_id = any (v_workers))
        and not longshore.is_limited(l.id)
        and (
          exists (
            select from longshore.jobs j
            where j.lane = l.id and j.state = 'ready' and (j.score, j.id) < (v_lane.score, v_lane.id)
              and (j.group_id is null or j.group_id <> all (v_groups)) offset 0)
          or exists (
            select from longshore.lane_heads h
            where h.parent = l.id and h.closed_by is null and exists (
              select from longshore.jobs j
              where j.lane = h.lane and j.state = 'ready' and (j.score, j.id) < (v_lane.score, v_lane.id)
                and (j.group_id is null or j.group_id <> all (v_groups)) offset 0)
            offset 0))
    ) then
      return 'in line';
    end if;
    if not exists (
      select from unnest(v_workers) as w(id)
      where not exists (select from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0)
    ) then
      return 'busy';
    end if;
  end loop;
  return null;
end
$$;
