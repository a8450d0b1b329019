-- The payload of a run, where it is too large to travel with the claim. Null: the lease is gone.
-- public: worker
create function longshore.read_payload(p_worker int, p_id uuid, p_token bigint, p_secret bytea default null) returns jsonb
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  return (
    select j.payload from longshore.jobs j where j.id = p_id and j.worker_id = p_worker and j.lease_token = p_token);
end
$$;
