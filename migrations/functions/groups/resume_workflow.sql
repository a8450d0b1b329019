-- Let a workflow that a failure has stopped go on with its next job. Answers whether it was stopped; no for a workflow that another
-- role's job has stopped and whose next job is another role's too.
-- public: producer
create function longshore.resume_workflow(p_key text) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_role oid := longshore.acting_role();
  v_workflow bigint;
begin
  perform longshore.need_read_committed('resume a workflow');
  update longshore.workflows w set halted_by = null
  where w.key = p_key and w.halted_by is not null and coalesce(
    (select longshore.is_own(v_role, f.enqueued_by) from longshore.finished_jobs f where f.id = w.halted_by limit 1),
    (select longshore.is_own(v_role, j.enqueued_by) from longshore.jobs j where j.workflow = w.id order by j.workflow_seq limit 1),
    true)
  returning w.id into v_workflow;
  if not found then
    return false;
  end if;
  perform longshore.pass_on('{}', '{}', array[v_workflow]);
  return true;
exception when lock_not_available then
  raise exception 'longshore: somebody holds workflow % or its next job for longer than a second', left(p_key, 200)
    using errcode = 'lock_not_available',
      hint = 'An open transaction has enqueued into it or has changed the job: try again when that has ended.';
end
$$;
