-- Leases: a worker lives as long as it beats; what a dead one ran is rescued. And what an impatient user may do to a job.

alter table longshore.tasks
  add max_rescues smallint not null default 10 check (max_rescues between 0 and 1000);

-- `expires_at` is moved on by each beat, by the database's clock. `dead_at`: its jobs are being rescued; it can claim
-- nothing any more, and its row goes when the last of them has been.
alter table longshore.workers
  drop column beat_at,
  add lease_ms int not null default 15000 check (lease_ms between 100 and 3600000),
  add expires_at timestamptz not null default now() + interval '15 seconds',
  add dead_at timestamptz;

-- `rescues`: how often a worker died with it, apart from attempts. `is_cancelled`: somebody cancelled it while it ran;
-- however that run ends, the job ends as cancelled.
alter table longshore.jobs
  add rescues smallint not null default 0 check (rescues >= 0),
  add is_cancelled boolean not null default false,
  add constraint only_running_is_being_cancelled check (state = 'running' or not is_cancelled);
create index jobs_cancelled on longshore.jobs (worker_id) where is_cancelled;

alter table longshore.finished_jobs
  add rescues smallint not null default 0;
