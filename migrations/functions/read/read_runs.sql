-- The runs that Postgres believes this worker holds, or those of them that were cancelled.
-- public: worker
create function longshore.read_runs(p_worker int, p_only_cancelled boolean, p_secret bytea default null)
returns table (id uuid, lease_token bigint)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  if p_only_cancelled then
    return query select j.id, j.lease_token from longshore.jobs j where j.worker_id = p_worker and j.is_cancelled;
  else
    return query select j.id, j.lease_token from longshore.jobs j where j.worker_id = p_worker and j.state = 'running';
  end if;
end
$$;
