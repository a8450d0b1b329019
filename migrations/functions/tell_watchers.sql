-- Tell whoever watches groups (rows of awaited without a job) what has become of one.
create function longshore.tell_watchers(p_group uuid, p_event text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.waiter_' || a.waiter, p_group || ' ' || p_event)
  from longshore.awaited a where a.job_id = '00000000-0000-0000-0000-000000000000';
end
$$;
