-- Settle runs that did not succeed, one by one: see settle. Answers `ready` for those that may run again at once.
create function longshore.settle_unsuccessful(p_worker int, p_others jsonb)
returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_given record;
  v_job longshore.jobs;
  v_ready uuid[] := '{}';
  v_end longshore.job_state;
  v_freed uuid[];
begin
  for v_given in
    select o.* from jsonb_to_recordset(p_others) as o(id uuid, token bigint, outcome text, error jsonb, "delayMs" bigint)
    order by o.id
  loop
    select * into v_job from longshore.jobs j
    where j.id = v_given.id
      /* guard: own-worker */ and j.worker_id = p_worker /* end own-worker */
      /* guard: own-token */ and j.lease_token = v_given.token /* end own-token */
    /* guard: job-lock */ for no key update skip locked /* end job-lock */;
    if not found then
      return query
      select v_given.id, case when exists (
        select from longshore.jobs j
        where j.id = v_given.id and j.worker_id = p_worker and j.lease_token = v_given.token
      ) then 'busy' else 'lost' end, null::int, null::smallint, null::smallint
      where not exists (
        select from longshore.finished_jobs f where f.id = v_given.id and f.lease_token = v_given.token
      );
      continue;
    end if;

    /* point: job-held */
    if /* guard: cancelled-ends */ v_job.is_cancelled /* end cancelled-ends */ then
      v_end := 'cancelled';
    elsif v_given.outcome = 'failed'
      /* guard: max-attempts */ or (v_given.outcome = 'retry' and v_job.attempts >= v_job.max_attempts) /* end max-attempts */
    then
      v_end := 'failed';
    else
      v_end := null;
    end if;
    if v_end is not null and (v_job.group_id is not null or v_job.workflow is not null) then
      v_freed := longshore.end_linked(v_job, v_end, null, v_given.error);
      return query select e.* from longshore.settle_answer(v_job, v_freed) e;
      continue;
    elsif v_end is not null then
      perform longshore.finish_job(v_job, v_end, null, v_given.error);
    elsif v_given.outcome = 'retry' then
      if longshore.send_back(v_job, least(greatest(v_given."delayMs", 0), 315360000000), v_given.error) then
        v_ready := v_ready || v_job.id;
      end if;
    elsif v_given.outcome = 'released' then
      v_job.attempts := v_job.attempts - 1;
      -- With a delay where the worker that has it cannot run it: others shall come first.
      if longshore.send_back(v_job, case when v_given."delayMs" > 0 then least(v_given."delayMs", 3600000) end, v_job.error) then
        v_ready := v_ready || v_job.id;
      end if;
    else
      raise exception 'longshore: unknown outcome "%"', left(v_given.outcome, 200) using errcode = 'invalid_parameter_value';
    end if;
    if /* guard: tell-slots */ v_job.slot is not null or v_job.key_slot is not null /* end tell-slots */ then
      return query select null::uuid, 'held'::text, v_job.lane, v_job.slot, v_job.key_slot;
    end if;
  end loop;
  if v_ready <> '{}' then
    /* guard: tell-relay */ perform longshore.note_changes(v_ready); /* end tell-relay */
    return query select r.id, 'ready'::text, null::int, null::smallint, null::smallint from unnest(v_ready) as r(id);
  end if;
end
$$;
