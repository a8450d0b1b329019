-- Secrets: a worker and the leader prove who they are. A process makes up a secret for each life; the table keeps its hash, in a
-- column that no role may read.

alter table longshore.workers add secret bytea;

-- `since`: it has led from then on without a gap.
alter table longshore.leader
  add secret bytea,
  add since timestamptz not null default now();

-- What a worker may still add log lines to when it no longer holds the job: runs that were given back, tried again or rescued, and
-- workers that have left. Kept for a day. Not logged: a crash of Postgres may cost the last lines of logs anyway.
create unlogged table longshore.past_runs (
  job_id uuid not null,
  lease_token bigint not null,
  worker_id int not null,
  ended_at timestamptz not null default now(),
  primary key (job_id, lease_token)
);
create unlogged table longshore.past_workers (
  id int primary key,
  secret bytea,
  ended_at timestamptz not null default now()
);

-- The role that waits (see acting_role.sql): it is told only of what it may read. And how many rows each may have.
alter table longshore.awaited
  add asked_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user)));
create index awaited_by_role on longshore.awaited (asked_by);
alter table longshore.settings
  add most_waits int not null default 1000000 check (most_waits between 1 and 100000000);
