-- The limits of a task change, to what its tasks row will say: its own and that of each of its keys. The caller holds them,
-- see hold_limits.
create function longshore.set_limits(p_task text, p_concurrency int, p_per_key int) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key text;
  v_was longshore.tasks;
begin
  if p_concurrency < 1 or p_per_key < 1 then
    raise exception 'longshore: the concurrency of % must be a whole number from 1 to 1000000', left(p_task, 200)
      using errcode = 'invalid_parameter_value', hint = 'Leave it out for no limit.';
  end if;
  select * into v_was from longshore.tasks t where t.name = p_task;
  if v_was.concurrency is distinct from p_concurrency then
    perform longshore.set_limit(p_task, '', p_concurrency);
  end if;
  if v_was.concurrency_per_key is distinct from p_per_key then
    -- Keys that were met before, and those of which something runs; others get their limit when a claim meets them.
    for v_key in
      select k.key from longshore.limits k where k.task = p_task and k.key <> ''
      union
      select l.concurrency_key from longshore.jobs j join longshore.lanes l on l.id = j.lane
      where v_was.concurrency_per_key is null and j.state = 'running' and l.task = p_task and l.concurrency_key <> ''
      order by 1
    loop
      perform longshore.set_limit(p_task, v_key, p_per_key);
    end loop;
  end if;
end
$$;
