-- Note what a process knows of its tasks ([{name, queue, tag, maxAttempts}]) and make their lanes. Writes only what
-- changed, and never touches tasks that it is not given.
create function longshore.register_tasks(p_tasks jsonb) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.make_lane(g.queue, g.name, g.tag, 'c:')
  from jsonb_to_recordset(p_tasks) as g(name text, queue text, tag text);
  insert into longshore.tasks (name, queue, tag, max_attempts)
  select g.name, g.queue, g.tag, g."maxAttempts"
  from jsonb_to_recordset(p_tasks) as g(name text, queue text, tag text, "maxAttempts" smallint)
  where not exists (
    select from longshore.tasks t
    where (t.name, t.queue, t.tag, t.max_attempts) = (g.name, g.queue, g.tag, g."maxAttempts")
  )
  on conflict (name) do update
  set queue = excluded.queue, tag = excluded.tag, max_attempts = excluded.max_attempts, registered_at = now();
end
$$;
