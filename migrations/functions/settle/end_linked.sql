-- End one job that others may wait for, and whose row the caller has locked; see finish_job and pass_on. Returns what became
-- ready, or null when another transaction locks a row that it needs: then nothing was changed. Looks before it waits, so
-- that many jobs that are locked, or whose dependents are, do not wait one after another.
create function longshore.end_linked(
  p_job longshore.jobs, p_state longshore.job_state, p_result jsonb default null, p_error jsonb default null
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
  -- Locked: another transaction adds a job that runs after this one.
  perform from longshore.jobs j where j.id = p_job.id for update skip locked;
  if not found /* guard: look-first */ or longshore.free_to_end(array[p_job.id]) = '{}' /* end look-first */ then
    return null;
  end if;
  perform longshore.finish_job(p_job, p_state, p_result, p_error);
  return longshore.pass_on(
    array[p_job.id], array[p_state], array_remove(array[p_job.workflow], null),
    case when p_job.halts and p_state = 'failed' then array[p_job.workflow] else '{}' end,
    case when p_job.halts and p_state = 'failed' then array[p_job.id] else '{}' end);
exception when lock_not_available then
  return null;
end
$$;
