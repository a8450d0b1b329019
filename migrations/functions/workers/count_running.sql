-- How many jobs run under these workers.
-- public: worker
create function longshore.count_running(p_workers int[]) returns bigint
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return (select count(*) from longshore.jobs j where j.worker_id = any (p_workers));
end
$$;
