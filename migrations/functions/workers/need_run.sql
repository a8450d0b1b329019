-- The caller runs this job, or has just ended it, as this worker: refused otherwise.
create function longshore.need_run(p_worker int, p_id uuid, p_token bigint, p_secret bytea) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  /* guard: own-run */ if not exists (
    select from longshore.jobs j where j.id = p_id and j.worker_id = p_worker and j.lease_token = p_token
  ) and not exists (
    select from longshore.finished_jobs f where f.id = p_id and f.worker_id = p_worker and f.lease_token = p_token
  ) then
    raise exception 'longshore: worker % does not hold job %', p_worker, p_id using errcode = 'LS007',
      hint = 'Stop the work: the job runs elsewhere.';
  end if; /* end own-run */
end
$$;
