-- Note what a process knows of its tasks ([{name, queue, tag, maxAttempts, maxRescues, concurrency, concurrencyPerKey}])
-- and make their lanes. Writes only what changed, and once a day that they are still known, see forget_names. Never touches tasks that it is not given.
-- public: worker
create function longshore.register_tasks(p_tasks jsonb) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_task record;
begin
  perform longshore.make_lane(g.queue, g.name, g.tag, 'c:')
  from jsonb_to_recordset(p_tasks) as g(name text, queue text, tag text);
  perform longshore.hold_limits(array_agg(g.name), array_agg(g.concurrency), array_agg(g."concurrencyPerKey"))
  from jsonb_to_recordset(p_tasks) as g(name text, concurrency int, "concurrencyPerKey" int)
  left join longshore.tasks t on t.name = g.name
  where (g.concurrency, g."concurrencyPerKey") is distinct from (t.concurrency, t.concurrency_per_key)
  having count(*) > 0;
  for v_task in
    select g.name, g.concurrency, g."concurrencyPerKey" as per_key
    from jsonb_to_recordset(p_tasks) as g(name text, concurrency int, "concurrencyPerKey" int)
    left join longshore.tasks t on t.name = g.name
    where (g.concurrency, g."concurrencyPerKey") is distinct from (t.concurrency, t.concurrency_per_key)
    order by g.name
  loop
    perform longshore.set_limits(v_task.name, v_task.concurrency, v_task.per_key);
  end loop;
  insert into longshore.tasks (name, queue, tag, max_attempts, max_rescues, concurrency, concurrency_per_key)
  select g.name, g.queue, g.tag, g."maxAttempts", coalesce(g."maxRescues", 10), g.concurrency, g."concurrencyPerKey"
  from jsonb_to_recordset(p_tasks) as g(
    name text, queue text, tag text, "maxAttempts" smallint, "maxRescues" smallint, concurrency int,
    "concurrencyPerKey" int)
  where not exists (
    select from longshore.tasks t
    where (t.name, t.queue, t.tag, t.max_attempts, t.max_rescues) =
      (g.name, g.queue, g.tag, g."maxAttempts", coalesce(g."maxRescues", 10))
      and (t.concurrency, t.concurrency_per_key) is not distinct from (g.concurrency, g."concurrencyPerKey")
      and /* guard: still-known */ t.registered_at > now() - interval '1 day' /* end still-known */
  )
  order by g.name
  on conflict (name) do update
  set queue = excluded.queue, tag = excluded.tag, max_attempts = excluded.max_attempts,
    max_rescues = excluded.max_rescues, concurrency = excluded.concurrency,
    concurrency_per_key = excluded.concurrency_per_key, registered_at = now();
end
$$;
