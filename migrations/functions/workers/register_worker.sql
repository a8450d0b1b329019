-- A worker begins a life: returns its id, new for each. p_secret: proves in every later call that it is this worker.
-- public: worker
create function longshore.register_worker(
  p_name text, p_queues text[], p_tasks text[], p_tags text[], p_properties jsonb, p_constraint_tags text[],
  p_lease_ms int, p_is_drained boolean default false, p_secret bytea default null
) returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_id int;
begin
  perform longshore.check_properties(array(select jsonb_object_keys(p_properties)));
  -- Not while another transaction sets a limit: it stops the claims of the workers that it sees.
  /* guard: limits-lock */ perform pg_advisory_xact_lock_shared(hashtext('longshore.limits'), 0); /* end limits-lock */
  insert into longshore.workers (name, queues, tasks, tags, properties, constraint_tags, lease_ms, secret, drained_at, expires_at)
  values (p_name, p_queues, p_tasks, p_tags, p_properties, p_constraint_tags, p_lease_ms,
    longshore.check_secret(p_secret), case when p_is_drained then clock_timestamp() end,
    clock_timestamp() + p_lease_ms * interval '1 millisecond')
  returning id into v_id;
  /* guard: tell-relay */ perform longshore.note_changes(p_workers => array[v_id]); /* end tell-relay */
  return v_id;
end
$$;
