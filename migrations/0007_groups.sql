-- Groups: jobs submitted together, each of which may run after others of its group.

create type longshore.edge_policy as enum ('fail', 'run', 'cancel');

-- Whether a group is queued or dispatching is told by its jobs, see the view group_status: a row that each of them had
-- to change would be in the way of all of them. `end_state` is written once, when no job is left.
-- The counts: jobs that have ended and whose history has been dropped; once the group has ended, all of them.
-- `seen`, `seen_at`: what the watchdog saw when something last changed. `stuck`: what it reported.
create table longshore.groups (
  id uuid primary key,
  name text check (length(name) between 1 and 200),
  end_state text check (end_state in ('complete', 'failed', 'cancelled')),
  created_at timestamptz not null default now(),
  cancelled_at timestamptz,
  finished_at timestamptz,
  succeeded int not null default 0,
  failed int not null default 0,
  cancelled int not null default 0,
  dependency_failed int not null default 0,
  seen text,
  seen_at timestamptz not null default now(),
  stuck jsonb,
  constraint ended_has_a_time check ((end_state is null) = (finished_at is null))
);
create index groups_unfinished on longshore.groups (id) where finished_at is null;
create index groups_finished on longshore.groups (finished_at) where finished_at is not null;

-- `child` runs after `parent`; the policy says what becomes of it when that does not succeed. Edges stay as long as the
-- child's history does, so that results can be read along them. Which of them are open is told by the parents.
create table longshore.edges (
  parent uuid not null,
  child uuid not null,
  policy longshore.edge_policy not null default 'fail',
  primary key (parent, child),
  constraint nobody_waits_for_itself check (parent <> child)
);
create index edges_by_child on longshore.edges (child, parent);

-- `pending`: for how many things a job waits; null when for none. A cache of what edges and workflows say.
alter table longshore.jobs
  add group_id uuid,
  add pending int check (pending > 0),
  add constraint waiting_is_for_something check ((state = 'waiting') = (pending is not null));
create index jobs_of_group on longshore.jobs (group_id, state) where group_id is not null;

alter table longshore.finished_jobs
  add group_id uuid;
create index finished_jobs_of_group on longshore.finished_jobs (group_id, state) where group_id is not null;

-- After how long without any change a group that ought to move is reported, and whether it is cancelled then.
alter table longshore.settings
  add watchdog_ms bigint not null default 600000 check (watchdog_ms between 100 and 31536000000),
  add watchdog_cancels boolean not null default false;
