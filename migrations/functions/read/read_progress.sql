-- How far a job is, as its handler said last; whether it has ended. `has_ended` is null when there is no such job, or its history
-- has been dropped. Figures as texts: to the last digit, whatever extra_float_digits is.
-- public: producer
create function longshore.read_progress(
  p_job uuid, out done text, out total text, out attempt smallint, out at timestamptz, out has_ended boolean
)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set extra_float_digits = 1
as $$
begin
  if longshore.is_own_job(p_job) is not true then
    return;
  end if;
  select p.done, p.total, p.attempt, p.at into done, total, attempt, at
  from longshore.job_progress p where p.job_id = p_job order by p.lease_token desc, p.at desc limit 1;
  select e.has_ended into has_ended
  from (
    select false as has_ended from longshore.jobs j where j.id = p_job
    union all select true from longshore.finished_jobs f where f.id = p_job
  ) e
  limit 1;
end
$$;
