-- End a run successfully inside the transaction that holds the user's writes; its last statement before the commit. Answers
-- `completed` (with the id of its group, if it has one), `lost` (the lease is gone), `cancelled`, or `ended`: this is not the transaction
-- that began, so it does not hold the user's writes. Only the first has changed anything; the caller rolls back on the others.
-- At its begin that transaction has set `longshore_run.lease` to the lease token, for itself only.
-- public: worker
create function longshore.complete(p_worker int, p_id uuid, p_token bigint, p_result jsonb, p_secret bytea default null)
returns text
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- Slots are freed under it as well: a user's work should not be lost to a moment of crowding.
set lock_timeout = '10s'
as $$
declare
  v_job longshore.jobs;
  v_freed int[];
begin
  /* guard: own-transaction */ if current_setting('longshore_run.lease', true) is distinct from p_token::text then
    return 'ended';
  end if; /* end own-transaction */
  p_worker := longshore.need_worker(p_worker, p_secret);
  select * into v_job from longshore.jobs j
  where j.id = p_id
    /* guard: own-worker */ and j.worker_id = p_worker /* end own-worker */
    /* guard: own-token */ and j.lease_token = p_token /* end own-token */
  /* guard: job-lock */ for update /* end job-lock */;
  if not found then
    return 'lost';
  /* guard: not-cancelled */ elsif v_job.is_cancelled then
    return 'cancelled'; /* end not-cancelled */
  end if;
  /* point: job-held */
  -- From here on other transactions may wait for this one: a process that is paused now must not block them for longer.
  perform set_config('idle_in_transaction_session_timeout', '10s', true);
  perform longshore.finish_job(v_job, 'succeeded', p_result);
  if v_job.group_id is not null or v_job.workflow is not null then
    /* guard: pass-on */ perform longshore.pass_on_patiently(
      array[v_job.id], '{succeeded}', array_remove(array[v_job.workflow], null), '10 seconds'); /* end pass-on */
  end if;
  if /* guard: free-slots */ v_job.slot is not null or v_job.key_slot is not null /* end free-slots */ then
    v_freed := longshore.free_slots(array[v_job.lane], array[v_job.slot], array[v_job.key_slot]);
    perform longshore.reopen(v_freed);
  end if;
  /* point: completed */
  return concat_ws(' ', 'completed', v_job.group_id);
end
$$;
