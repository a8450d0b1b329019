-- The durable truth of a job: its lane, its place in the order, its lease, and its history once it has ended.

create type longshore.job_state as enum (
  'waiting', 'scheduled', 'ready', 'running', 'succeeded', 'failed', 'cancelled', 'dependency_failed'
);

-- One row: what holds for the whole deployment.
create table longshore.settings (
  only_row boolean primary key default true check (only_row),
  dispatch text not null default 'direct' check (dispatch in ('direct', 'redis')),
  retention_days int not null default 7 check (retention_days between 1 and 3650)
);
insert into longshore.settings default values;

-- What producers and workers have said about a task; plain SQL enqueues take their defaults from here.
create table longshore.tasks (
  name text primary key check (length(name) between 1 and 200),
  queue text not null check (length(queue) between 1 and 100),
  tag text not null check (length(tag) between 1 and 100),
  max_attempts smallint not null check (max_attempts between 1 and 1000),
  registered_at timestamptz not null default now()
);

-- Jobs that are alike to the scheduler. Not unique: a transaction that needs a lane which another, still open,
-- transaction has just made gets one of its own instead of waiting. Two alike lanes do no harm.
create table longshore.lanes (
  id int generated always as identity primary key,
  queue text not null check (length(queue) between 1 and 100),
  task text not null check (length(task) between 1 and 200),
  tag text not null check (length(tag) between 1 and 100),
  constraint_tag text not null check (constraint_tag like 'c:%' and length(constraint_tag) <= 500)
);
create index lanes_by_kind on longshore.lanes (task, tag, constraint_tag, queue);

-- One row per process start. `listening`: it waits for a notification on its own channel, so whoever makes a
-- job ready must ring; while it polls by itself nobody needs to.
create table longshore.workers (
  id int generated always as identity primary key,
  name text not null check (length(name) between 1 and 200),
  queues text[] not null,
  tasks text[] not null,
  tags text[] not null,
  constraint_tags text[] not null,
  listening boolean not null default false,
  started_at timestamptz not null default now(),
  beat_at timestamptz not null default now()
);
create index workers_listening on longshore.workers (id) where listening;

-- Grows with each claim call and never falls: the number that fences every later write of that claim.
create sequence longshore.lease_tokens;

-- Unfinished work only. `score` is the one order of both stores, see the function of that name.
create table longshore.jobs (
  id uuid primary key,
  score bigint not null check (score >= 0),
  lease_token bigint not null default 0,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  lane int not null,
  worker_id int,
  state longshore.job_state not null check (state in ('waiting', 'scheduled', 'ready', 'running')),
  attempts smallint not null default 0,
  max_attempts smallint not null check (max_attempts between 1 and 1000),
  payload jsonb not null check (pg_column_size(payload) <= 8388608),
  error jsonb,
  constraint running_has_a_lease check ((state = 'running') = (worker_id is not null)),
  constraint running_has_started check ((state = 'running') = (started_at is not null)),
  constraint attempts_in_bounds check (attempts between 0 and max_attempts)
);
create index jobs_ready on longshore.jobs (lane, score, id) where state = 'ready';
create index jobs_scheduled on longshore.jobs ((score & 4398046511103)) where state = 'scheduled';

-- Finished work, a partition a day. One index serves the key and the look-up by id.
create table longshore.finished_jobs (
  id uuid not null,
  score bigint not null,
  lease_token bigint not null,
  created_at timestamptz not null,
  started_at timestamptz,
  finished_at timestamptz not null,
  lane int not null,
  worker_id int,
  day date not null,
  state longshore.job_state not null check (state in ('succeeded', 'failed', 'cancelled', 'dependency_failed')),
  attempts smallint not null,
  max_attempts smallint not null,
  payload jsonb not null,
  result jsonb,
  error jsonb,
  primary key (id, day)
) partition by range (day);
-- Settle must never fail for want of a partition.
create table longshore.finished_jobs_default partition of longshore.finished_jobs default;

-- Who waits for the result of a job, and on which channel.
create table longshore.awaited (
  job_id uuid not null,
  waiter text not null check (waiter ~ '^[a-z0-9]{1,11}$'),
  expires_at timestamptz not null,
  primary key (job_id, waiter)
);

-- Who does the upkeep. `epoch` is the term: it grows whenever the lease changes hands.
create table longshore.leader (
  only_row boolean primary key default true check (only_row),
  epoch bigint not null default 0,
  holder text,
  expires_at timestamptz not null default '-infinity'
);
insert into longshore.leader default values;
