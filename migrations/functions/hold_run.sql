-- Waits for whoever holds the job of this run, and holds it. False: the run has ended, or the lease is gone.
create function longshore.hold_run(p_worker int, p_id uuid, p_token bigint) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  perform from longshore.jobs j where j.id = p_id and j.worker_id = p_worker and j.lease_token = p_token for update;
  return found;
end
$$;
