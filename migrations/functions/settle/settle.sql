-- End runs. p_ids (ascending) with p_tokens are the jobs that succeeded; p_results maps ids to results where there
-- are any; p_others lists what ended otherwise: {id, token, outcome: failed | retry | released, error, delayMs}.
-- Each write is fenced by (worker, lease token). Waits for nobody longer than its lock_timeout. Returns only what was
-- not settled: `busy` (somebody holds the row: try again, alone) and `lost` (the lease is gone: nothing was changed);
-- and, as `held`, the slots that the ended runs held, for the caller to free or to use again; as `ready`, what may run at
-- once because of it; as `group`, groups that may be at their end: see close_groups. A job that somebody cancelled meanwhile
-- ends as cancelled, whatever its outcome.
create function longshore.settle(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb
) returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '50ms'
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_tokens bigint[];
  v_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_linked uuid[];
  v_workflows bigint[];
  v_groups uuid[];
  v_ready uuid[];
begin
  if cardinality(p_ids) > 0 then
    begin
      -- The common case in one statement: all of them are ours and nobody holds them. Whoever does (a claim that
      -- read an older snapshot) lets go within milliseconds, or is left to the careful way.
      with gone as (
        delete from longshore.jobs j
        where j.id = any (p_ids)
          /* guard: own-worker */ and j.worker_id = p_worker /* end own-worker */
          /* guard: not-cancelled */ and not j.is_cancelled /* end not-cancelled */
        returning j.id, j.score, j.lease_token, j.created_at, j.started_at, j.lane, j.attempts, j.max_attempts, j.rescues, j.payload,
          j.group_id, j.workflow, j.workflow_seq, j.slot, j.key_slot, j.enqueued_by
      ) /* guard: to-history */, kept as (
        insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane,
          worker_id, day, state, attempts, max_attempts, rescues, payload, result, group_id, workflow, workflow_seq,
          enqueued_by)
        select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane,
          p_worker, (now() at time zone 'utc')::date, 'succeeded', g.attempts, g.max_attempts, g.rescues, g.payload,
          case when p_results is not null then p_results -> g.id::text end, g.group_id, g.workflow, g.workflow_seq,
          g.enqueued_by
        from gone g
      ) /* end to-history */
      select array_agg(g.id order by g.id), array_agg(g.lease_token order by g.id),
        array_agg(g.lane) filter (where g.slot is not null or g.key_slot is not null),
        array_agg(g.slot) filter (where g.slot is not null or g.key_slot is not null),
        array_agg(g.key_slot) filter (where g.slot is not null or g.key_slot is not null),
        array_agg(g.id) filter (where g.group_id is not null or g.workflow is not null),
        array_agg(g.workflow) filter (where g.workflow is not null),
        array_agg(distinct g.group_id) filter (where g.group_id is not null)
      into v_ids, v_tokens, v_lanes, v_slots, v_key_slots, v_linked, v_workflows, v_groups
      from gone g;
      /* point: moved */
      if v_ids is distinct from p_ids /* guard: own-token */ or v_tokens is distinct from p_tokens /* end own-token */ then
        raise lock_not_available;
      end if;
      if v_linked is not null then
        /* guard: pass-on */ v_ready := longshore.pass_on(
          v_linked, array_fill('succeeded'::longshore.job_state, array[cardinality(v_linked)]), v_workflows); /* end pass-on */
      end if;
    exception when lock_not_available or unique_violation then
      v_ids := null;
    end;
    if v_ids is null then
      return query
      select c.* from longshore.settle_contended(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.notify_job_waiters(v_ids);
      if v_lanes is not null then
        return query
        select null::uuid, 'held'::text, h.* from unnest(v_lanes, v_slots, v_key_slots) as h(lane, slot, key_slot);
      end if;
      if v_linked is not null then
        return query
        select r.id, 'ready'::text, null::int, null::smallint, null::smallint from unnest(v_ready) as r(id)
        union all
        select g.id, 'group', null, null, null from longshore.nearly_ended(v_groups) as g(id);
      end if;
    end if;
  end if;

  if p_others is not null then
    return query select o.* from longshore.settle_unsuccessful(p_worker, p_others) o;
  end if;
end
$$;
