-- A worker is to take no more jobs, or to take them again. It is told at once, and with its next beat. False: there is no such
-- worker, or it is dead.
-- public: worker
create function longshore.drain_worker(p_worker int, p_is_drained boolean) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if p_is_drained is null then
    raise exception 'longshore: drain_worker needs true (take no more jobs) or false (take them again), got null'
      using errcode = 'invalid_parameter_value';
  end if;
  -- A worker that takes no more jobs must not be rung in place of another.
  update longshore.workers w
  set drained_at = case when p_is_drained then coalesce(w.drained_at, clock_timestamp()) end,
    listening = w.listening and not p_is_drained
  where w.id = p_worker and w.dead_at is null;
  if not found then
    return false;
  end if;
  perform pg_notify('longshore.worker_' || p_worker, 'drain');
  return true;
end
$$;
