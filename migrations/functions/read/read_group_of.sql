-- The group of a job that this worker runs, or null.
-- public: worker
create function longshore.read_group_of(p_worker int, p_id uuid, p_token bigint, p_secret bytea default null) returns uuid
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  perform longshore.need_run(p_worker, p_id, p_token, p_secret);
  return coalesce(
    (select j.group_id from longshore.jobs j where j.id = p_id),
    (select f.group_id from longshore.finished_jobs f where f.id = p_id order by f.finished_at desc limit 1));
end
$$;
