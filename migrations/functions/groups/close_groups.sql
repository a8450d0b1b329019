-- Write the end state of those of the groups in which no job is left: `cancelled` if it was cancelled, or a job was and none
-- has failed; `failed` if a job has failed or could not run because of one; else `succeeded`. Skips groups that another
-- transaction locks to add jobs or to close them. Locks no group in which it sees a job, so that the call after the end of
-- that job finds the group free. Returns what was written.
-- public: worker
create function longshore.close_groups(p_groups uuid[]) returns table (id uuid, state text)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
-- As in settle_and_claim.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_groups uuid[];
  v_states text[];
begin
  v_groups := array(
    select g.id from longshore.groups g
    where g.id = any (p_groups) /* guard: not-ended */ and g.finished_at is null /* end not-ended */ /* point: before-lock */
      /* guard: only-empty */ and not exists (select from longshore.jobs j where j.group_id = g.id offset 0) /* end only-empty */
    order by g.id for update skip locked);
  if v_groups = '{}' then
    return;
  end if;
  -- A statement of its own, after the locks: it sees the jobs that earlier holders of the locks have added.
  with counted as materialized (
    select h.row, c.* from unnest(v_groups) as n(id)
    cross join lateral (select g.ctid as row from longshore.groups g where g.id = n.id offset 0) h
    cross join lateral (
      select count(*) filter (where f.state = 'succeeded') as succeeded,
        count(*) filter (where f.state = 'failed') as failed,
        count(*) filter (where f.state = 'cancelled') as cancelled,
        count(*) filter (where f.state = 'dependency_failed') as dependency_failed
      from longshore.finished_jobs f where f.group_id = n.id
    ) c
    /* guard: look-again */ where not exists (select from longshore.jobs j where j.group_id = n.id offset 0) /* end look-again */
  ), closed as (
    update longshore.groups g
    set succeeded = g.succeeded + c.succeeded, failed = g.failed + c.failed, cancelled = g.cancelled + c.cancelled,
      dependency_failed = g.dependency_failed + c.dependency_failed, finished_at = clock_timestamp(), stuck = null,
      end_state = case
        when g.cancelled_at is not null then 'cancelled'
        when g.failed + c.failed + g.dependency_failed + c.dependency_failed > 0 then 'failed'
        when g.cancelled + c.cancelled > 0 then 'cancelled'
        else 'succeeded'
      end
    from counted c
    where g.ctid = c.row
    returning g.id, g.end_state
  )
  select array_agg(c.id order by c.id), array_agg(c.end_state order by c.id) into v_groups, v_states from closed c;
  if v_groups is null then
    return;
  end if;
  perform longshore.notify_job_waiters(v_groups);
  perform longshore.tell_watchers(v_groups, v_states);
  return query select c.* from unnest(v_groups, v_states) as c(id, state);
end
$$;
