-- How many jobs run under these workers.
-- public: worker
create function longshore.count_running(p_workers int[]) returns bigint
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return (
    select count(*) from (select distinct w.id from unnest(p_workers) as w(id)) w
    cross join lateral (select from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0) j);
end
$$;
