-- Let a workflow that a failure has stopped go on with its next job. Answers whether it was stopped.
create function longshore.resume_workflow(p_key text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_workflow bigint;
begin
  perform longshore.need_read_committed('resume a workflow');
  update longshore.workflows w set halted_by = null where w.key = p_key and w.halted_by is not null
  returning w.id into v_workflow;
  if not found then
    return false;
  end if;
  perform longshore.pass_on('{}', '{}', array[v_workflow]);
  return true;
end
$$;
