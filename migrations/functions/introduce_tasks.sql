-- register_tasks for producers: tasks that nobody has registered are taken as they are given; those that are known keep their limits, which
-- are changed by who runs them.
create function longshore.introduce_tasks(p_tasks jsonb) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.register_tasks(jsonb_agg(g.task || case when t.name is null then '{}' else jsonb_build_object(
    'concurrency', t.concurrency, 'concurrencyPerKey', t.concurrency_per_key, 'maxRescues', t.max_rescues) end))
  from jsonb_array_elements(p_tasks) as g(task)
  left join longshore.tasks t on t.name = g.task ->> 'name';
end
$$;
