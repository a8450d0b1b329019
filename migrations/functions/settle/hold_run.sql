-- Waits for the transaction that locks the job of this run, then locks the job. `held`: it still runs here; `settled`: this very run has
-- ended it; `lost`: the lease is gone.
-- public: worker
create function longshore.hold_run(p_worker int, p_id uuid, p_token bigint, p_secret bytea default null) returns text
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  perform from longshore.jobs j where j.id = p_id and j.worker_id = p_worker and j.lease_token = p_token for update;
  return case
    when found then 'held'
    when exists (select from longshore.finished_jobs f where f.id = p_id and f.lease_token = p_token) then 'settled'
    else 'lost'
  end;
end
$$;
