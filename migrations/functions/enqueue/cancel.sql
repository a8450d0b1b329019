-- Cancel jobs, also inside a user's transaction:
--   select * from longshore.cancel(array['0198c0de-…']::uuid[])
-- Answers for each: `cancelled` (it never starts), `cancelling` (it runs: its worker is told, and however the run ends the
-- job ends as cancelled), `finished` (it had ended before) or `unknown` (also for another role's job). Jobs that wait for them end or
-- go on by the policies of the edges, and the next job of a workflow gets the turn. Waits at most a second for the lock of a row.
-- public: producer
create function longshore.cancel(p_ids uuid[]) returns table (id uuid, answer text)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_role oid := longshore.acting_role();
  v_job longshore.jobs;
  v_gone uuid[] := '{}';
  v_linked uuid[] := '{}';
  v_workflows bigint[] := '{}';
begin
  if cardinality(p_ids) > 10000 then
    raise exception 'longshore: % jobs are too many to cancel at once, at most 10000 are possible', cardinality(p_ids)
      using errcode = 'invalid_parameter_value', hint = 'Cancel them in several calls.';
  end if;
  for id in select distinct g.id from unnest(p_ids) as g(id) where g.id is not null order by 1 loop
    select * into v_job from longshore.jobs j
    where j.id = cancel.id and longshore.is_own(v_role, j.enqueued_by) /* guard: job-lock */ for update /* end job-lock */;
    /* point: job-held */
    if not found then
      answer := coalesce((
        select case when f.state = 'cancelled' then 'cancelled' else 'finished' end
        from longshore.finished_jobs f where f.id = cancel.id and longshore.is_own(v_role, f.enqueued_by) limit 1
      ), 'unknown');
    elsif /* guard: leave-running */ v_job.state = 'running' /* end leave-running */ then
      update longshore.jobs j set is_cancelled = true where j.id = v_job.id and not j.is_cancelled;
      perform pg_notify('longshore.worker_' || v_job.worker_id, 'cancel');
      answer := 'cancelling';
    else
      perform longshore.finish_job(v_job, 'cancelled');
      if v_job.group_id is not null or v_job.workflow is not null then
        v_linked := v_linked || v_job.id;
        if /* guard: has-turn */ v_job.has_turn /* end has-turn */ then
          /* guard: pass-turn */ v_workflows := v_workflows || v_job.workflow; /* end pass-turn */
        end if;
      end if;
      if v_job.state = 'ready' then
        v_gone := v_gone || v_job.id;
      end if;
      answer := 'cancelled';
    end if;
    return next;
  end loop;
  /* point: jobs-ended */
  /* guard: tell-relay */ perform longshore.note_changes(v_gone) where v_gone <> '{}'; /* end tell-relay */
  if v_linked <> '{}' then
    perform longshore.pass_on_patiently(
      v_linked, array_fill('cancelled'::longshore.job_state, array[cardinality(v_linked)]), v_workflows, '1 second');
  end if;
exception when lock_not_available then
  perform longshore.refuse_locked(id);
end
$$;
