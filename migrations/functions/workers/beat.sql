-- A sign of life: moves the worker's lease on, by the database's clock, and keeps how it fares. Not alive: its jobs are being
-- or have been rescued, and nothing it says counts any more. has_cancelled: jobs that it runs were cancelled. p_stuck, p_stuck_ms: how many
-- handlers ignored their signal and have not returned, and how long ago the oldest should have. p_waits_alone: a job that it has claimed and
-- that waits to run alone.
-- public: worker
create function longshore.beat(
  p_worker int, p_available int default null, p_max int default null, p_memory real default null,
  p_lag_ms real default null, p_completed bigint default null, p_failed bigint default null,
  p_secret bytea default null, p_stuck int default 0, p_stuck_ms bigint default null, p_waits_alone uuid default null
) returns table (is_alive boolean, has_cancelled boolean, is_drained boolean)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  update longshore.workers w
  set expires_at = clock_timestamp() + w.lease_ms * interval '1 millisecond',
    available_capacity = p_available, max_capacity = p_max, memory_usage = p_memory, event_loop_lag_ms = p_lag_ms,
    completed = p_completed, failed = p_failed, stuck_handlers = p_stuck,
    stuck_since = clock_timestamp() - p_stuck_ms * interval '1 millisecond', waits_alone = p_waits_alone
  where w.id = p_worker /* guard: not-dead */ and w.dead_at is null /* end not-dead */
  returning w.drained_at is not null into is_drained;
  is_alive := found;
  has_cancelled := exists (select from longshore.jobs j where j.worker_id = p_worker and j.is_cancelled);
  return next;
end
$$;
