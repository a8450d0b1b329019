-- What handlers say while they run. Nothing here is ever in the way of a job: other connections write it, and what cannot be
-- written is dropped and counted.

-- A partition a day, dropped with the history. A run is told by its lease token: after a rescue there are two with the same
-- attempt. Tokens grow, so they are also the order of the runs. The key makes it harmless to send a line again.
create table longshore.job_logs (
  job_id uuid not null,
  lease_token bigint not null,
  at timestamptz not null,
  seq int not null,
  day date not null,
  attempt smallint not null,
  level text not null check (level in ('debug', 'info', 'warn', 'error')),
  message text not null,
  data jsonb,
  primary key (job_id, lease_token, seq, day)
) partition by range (day);
create table longshore.job_logs_default partition of longshore.job_logs default;

-- How far a job is, a row for each day on which it said so: with partitions nothing has to be deleted. Written over and over,
-- so the pages of a partition keep room and no index holds what changes.
create table longshore.job_progress (
  job_id uuid not null,
  lease_token bigint not null,
  at timestamptz not null,
  done float8 not null,
  total float8,
  day date not null,
  attempt smallint not null,
  primary key (job_id, day)
) partition by range (day);
create table longshore.job_progress_default partition of longshore.job_progress default with (fillfactor = 50);

-- Whoever follows the log of a job is also told when there is more of it.
alter table longshore.awaited add column wants_logs boolean not null default false;
create index awaited_logs on longshore.awaited (job_id) where wants_logs;
