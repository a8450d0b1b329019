-- A sign of life: moves the worker's lease on, by the database's clock. Not alive: its jobs are being or have been
-- rescued, and nothing it says counts any more. has_cancelled: somebody cancelled jobs that it runs.
create function longshore.beat(p_worker int) returns table (is_alive boolean, has_cancelled boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update longshore.workers w set expires_at = clock_timestamp() + w.lease_ms * interval '1 millisecond'
  where w.id = p_worker and w.dead_at is null;
  is_alive := found;
  has_cancelled := exists (select from longshore.jobs j where j.worker_id = p_worker and j.is_cancelled);
  return next;
end
$$;
