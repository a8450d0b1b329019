-- End one job that others may wait for, and whose row the caller has locked; see finish_job and pass_on. Returns what became
-- ready, or null when somebody holds a row that is needed for it: then nothing was changed. Looks before it waits, so that
-- many jobs that are held, or with a dependent that is, do not wait one after another.
create function longshore.end_linked(
  p_job longshore.jobs, p_state longshore.job_state, p_result jsonb default null, p_error jsonb default null
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  v_dependents uuid[];
  v_next uuid;
begin
  -- Somebody adds a job that runs after this one.
  perform from longshore.jobs j where j.id = p_job.id for update skip locked;
  if not found then
    return null;
  end if;
  v_dependents := array(
    select j.id from longshore.edges e
    cross join lateral (select j.id from longshore.jobs j where j.id = e.child offset 0) j
    where e.parent = p_job.id);
  if cardinality(v_dependents) > (
    select count(*) from (
      select from longshore.jobs j where j.id = any (v_dependents) for no key update skip locked) free
  ) then
    return null;
  end if;
  if p_job.workflow is not null then
    perform from longshore.workflows w where w.id = p_job.workflow for update skip locked;
    if not found and exists (select from longshore.workflows w where w.id = p_job.workflow) then
      return null;
    end if;
    select j.id into v_next from longshore.jobs j
    where j.workflow = p_job.workflow and j.workflow_seq > p_job.workflow_seq order by j.workflow_seq limit 1;
    perform from longshore.jobs j where j.id = v_next for no key update skip locked;
    if v_next is not null and not found then
      return null;
    end if;
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
