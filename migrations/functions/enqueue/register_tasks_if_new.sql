-- register_tasks for producers: tasks that are not known yet are taken as they are given; those that are known stay as they are. They are
-- changed by the workers that run them. Once a day it writes that they are still known, see forget_names.
-- public: producer
create function longshore.register_tasks_if_new(p_tasks jsonb) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
    select from jsonb_to_recordset(p_tasks) as g(name text)
    where not exists (select from longshore.tasks t where t.name = g.name
      and /* guard: still-known */ t.registered_at > now() - interval '1 day' /* end still-known */))
  then
    return;
  end if;
  -- One at a time, as register_tasks goes: then the statement below sees what the one before has made known.
  /* guard: one-at-a-time */ perform pg_advisory_xact_lock(hashtext('longshore.make_lane')); /* end one-at-a-time */
  perform longshore.register_tasks(jsonb_agg(g.task))
  from jsonb_array_elements(p_tasks) as g(task)
  where not exists (select from longshore.tasks t where t.name = g.task ->> 'name')
  having count(*) > 0;
  update longshore.tasks t set registered_at = now()
  from jsonb_to_recordset(p_tasks) as g(name text)
  where t.name = g.name and t.registered_at <= now() - interval '1 day';
end
$$;
