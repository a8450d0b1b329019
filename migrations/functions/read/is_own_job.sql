-- Whether the caller may read what a job carries; false when there is no such job.
create function longshore.is_own_job(p_job uuid) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  return longshore.is_own(longshore.acting_role(), coalesce(
    (select j.enqueued_by from longshore.jobs j where j.id = p_job),
    (select f.enqueued_by from longshore.finished_jobs f where f.id = p_job limit 1)));
end
$$;
