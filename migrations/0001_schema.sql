-- The whole schema, in the order of a job's way: settings, lanes, workers, jobs, limits, workflows and groups, the history, logs, the
-- outbox for Redis, and views. The functions that write these tables are in functions/<step>/, one a file. docs/schema.sql lists what
-- a migrated database holds; a test compares the two.
--
-- Columns of the tables with many rows stand by width, those that are always set first: so a row needs no padding.


-- Settings of the whole deployment. One row.
create table longshore.settings (
  only_row boolean primary key default true check (only_row),
  -- How workers find jobs: in Postgres (direct mode), or through Redis, where a relay places them.
  dispatch text not null default 'direct' check (dispatch in ('direct', 'redis')),
  -- For how many days finished jobs and logs are kept; finished jobs a little longer, see the function kept_until.
  retention_days int not null default 7 check (retention_days between 1 and 3650),
  -- The keys of the properties that jobs may ask of workers.
  property_keys text[] not null default '{gpu,mem,region}',
  -- Names the deployment in Redis, so that several can share a server.
  deployment text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)
    check (deployment ~ '^[a-z0-9]{1,40}$'),
  -- After how long without any change the watchdog reports a group that ought to move, and whether it cancels that group.
  watchdog_ms bigint not null default 600000 check (watchdog_ms between 100 and 31536000000),
  watchdog_cancels boolean not null default false,
  -- How many rows of `awaited` one role may have.
  most_waits int not null default 1000000 check (most_waits between 1 and 100000000),
  -- How many queues there may be: a job for one more is refused, see check_queues.
  max_queues int not null default 1000 check (max_queues between 1 and 1000000),
  -- Until which day the history may hold jobs that ended under a longer retention than today's.
  history_until date not null default '2000-01-01',
  constraint at_most_three_property_keys check (cardinality(property_keys) <= 3),
  constraint property_keys_are_words check (
    array_to_string(property_keys, ',') ~ '^([a-z][a-z0-9_]{0,39}(,[a-z][a-z0-9_]{0,39})*)?$'
    -- No commas inside a key, no nulls.
    and cardinality(string_to_array(array_to_string(property_keys, ','), ',')) = cardinality(property_keys)),
  constraint property_keys_differ check (
    coalesce(property_keys[1] <> property_keys[2], true) and coalesce(property_keys[1] <> property_keys[3], true)
    and coalesce(property_keys[2] <> property_keys[3], true))
);
insert into longshore.settings default values;

-- What producers and workers have declared about each task. Enqueueing from plain SQL takes its defaults from here.
create table longshore.tasks (
  name text primary key check (length(name) between 1 and 200),
  queue text not null check (length(queue) between 1 and 100),
  tag text not null check (length(tag) between 1 and 100),
  max_attempts smallint not null check (max_attempts between 1 and 1000),
  registered_at timestamptz not null default now(),
  -- How many jobs of the task may run at once, over all workers, and how many of each of its concurrency keys. Null: any number.
  concurrency int check (concurrency between 1 and 1000000),
  concurrency_per_key int check (concurrency_per_key between 1 and 1000000),
  max_rescues smallint not null default 10 check (max_rescues between 0 and 1000),
  -- Names end up on terminals.
  constraint names_without_control_characters check ((name || queue || tag) !~ E'[\\x01-\\x1f\\x7f-\\x9f]')
);

-- How the relay spreads the jobs of a queue over workers. Null: as the relay's own settings say.
create table longshore.queues (
  name text primary key check (length(name) between 1 and 100),
  schedule_mode text check (schedule_mode in ('fanout', 'balanced')),
  balance_strategy text check (balance_strategy in ('least-queue', 'round-robin', 'random')),
  -- 0: to all.
  fanout_width int check (fanout_width between 0 and 1000)
);


-- A lane holds the jobs that the same workers may run in the same order. Not unique: a transaction that needs a lane which another,
-- still open, transaction has just made gets one of its own instead of waiting. Two equal lanes do no harm.
create table longshore.lanes (
  id int generated always as identity primary key,
  queue text not null check (length(queue) between 1 and 100),
  task text not null check (length(task) between 1 and 200),
  tag text not null check (length(tag) between 1 and 100),
  -- What its jobs ask of a worker, as one text: keys in order, values percent-encoded.
  constraint_tag text not null check (constraint_tag like 'c:%' and length(constraint_tag) <= 500),
  -- Jobs with a concurrency key have a lane for each key, below the same lane without one: its parent.
  concurrency_key text not null default '' check (length(concurrency_key) <= 200),
  parent int,
  -- Since then it has no jobs, as far as the leader knows, see forget_lanes. Null: it is in use.
  unused_since timestamptz,
  constraint constraint_tag_is_canonical
    check (constraint_tag ~ '^c:([a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+(,[a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+){0,2})?$'),
  constraint only_a_key_has_a_parent check ((concurrency_key = '') = (parent is null)),
  -- Names end up on terminals.
  constraint names_without_control_characters
    check ((queue || task || tag || concurrency_key) !~ E'[\\x01-\\x1f\\x7f-\\x9f]')
);
create index lanes_by_kind on longshore.lanes (task, tag, constraint_tag, queue) where concurrency_key = '';
create index lanes_by_key on longshore.lanes (task, concurrency_key, tag, constraint_tag, queue)
  where concurrency_key <> '';
-- Every queue that has lanes has one without a key.
create index lanes_by_queue on longshore.lanes (queue, id) where concurrency_key = '';
-- Two, so that few lanes without a key are not looked for among thousands with one.
create index lanes_by_queue_with_key on longshore.lanes (queue, id) where concurrency_key <> '';
create index lanes_by_parent on longshore.lanes (parent) where parent is not null;

-- Lanes that were marked as unused and that a transaction has used since: the leader takes the mark away, see forget_lanes.
create table longshore.lane_uses (
  lane int not null
);
create index lane_uses_by_lane on longshore.lane_uses (lane);

-- How far the leader is with forgetting what is not used any more, see forget_lanes. One row.
create table longshore.forgetting (
  only_row boolean primary key default true check (only_row),
  -- A round marks lanes without ready jobs, waits for the transactions that may not have seen the marks, and clears the marks of all lanes that have jobs.
  step text not null default 'resting' check (step in ('resting', 'marking', 'waiting', 'clearing', 'names')),
  began_at timestamptz not null default now(),
  -- The next round begins then.
  next_at timestamptz not null default now() + interval '1 hour',
  -- The last lane, and the last job, that it has come to.
  lane int not null default 0,
  job uuid not null default '00000000-0000-0000-0000-000000000000',
  marked int not null default 0,
  -- Transactions with a lower number may not have seen the marks.
  wait_for xid8,
  -- Rounds from then on came to no end within a day: their marks say too early a time.
  void_from timestamptz
) with (fillfactor = 50);
insert into longshore.forgetting default values;


-- One row for each start of a worker. Which lanes it may run: see the view worker_lanes.
create table longshore.workers (
  id int generated always as identity primary key,
  name text not null check (length(name) between 1 and 200),
  queues text[] not null,
  tasks text[] not null,
  tags text[] not null,
  properties jsonb not null default '{}' check (jsonb_typeof(properties) = 'object'),
  -- Every constraint tag that its properties satisfy.
  constraint_tags text[] not null,
  -- It waits for a notification on its own channel, so a transaction that makes a job ready must ring it. While it polls
  -- by itself, no transaction needs to.
  listening boolean not null default false,
  started_at timestamptz not null default now(),
  -- Each beat moves `expires_at` on, by the database's clock. A worker lives until then.
  lease_ms int not null default 15000 check (lease_ms between 100 and 3600000),
  expires_at timestamptz not null default now() + interval '15 seconds',
  -- Its jobs are being rescued. It can claim nothing any more; its row goes when the last of its jobs has been rescued.
  dead_at timestamptz,
  -- A person or a program wants it to take no more jobs.
  drained_at timestamptz,
  -- Its free and total permits and its condition, as of its last beat.
  available_capacity int,
  max_capacity int,
  memory_usage real,
  event_loop_lag_ms real,
  completed bigint,
  failed bigint,
  -- Handlers that ignored their signal and have not returned, and since when the oldest of them should have. While there are any, no
  -- job can run alone here.
  stuck_handlers int not null default 0,
  stuck_since timestamptz,
  -- The job that it has claimed and that waits here until it can run alone.
  waits_alone uuid,
  -- The hash of the secret that a worker makes up for each life. No role may read it.
  secret bytea,
  constraint at_most_eight_constraint_tags
    check (cardinality(constraint_tags) between 1 and 8 and 'c:' = any (constraint_tags)),
  constraint arrays_in_bounds
    check (cardinality(tags) <= 1000 and cardinality(tasks) <= 10000 and cardinality(queues) <= 1000),
  constraint offers_in_bounds check (
    cardinality(tags) > 0 and cardinality(tasks) > 0 and cardinality(queues) > 0
    and not '' = any (tags || tasks || queues)
    and array_position(tags || tasks || queues, null) is null)
);
create index workers_listening on longshore.workers (id) where listening;
-- For finding the workers that a lane's jobs may go to.
-- Rows change when a worker begins or ends to listen: without a pending list that look-ups would have to read.
create index workers_by_tag on longshore.workers using gin (tags) with (fastupdate = off);
create index workers_by_constraint_tag on longshore.workers using gin (constraint_tags) with (fastupdate = off);

-- Workers that have left, for a day: so they can still add the last lines of their logs. Not logged: a crash of Postgres may cost
-- the last lines of logs anyway.
create unlogged table longshore.past_workers (
  id int primary key,
  secret bytea,
  ended_at timestamptz not null default now()
);


create type longshore.job_state as enum (
  'waiting', 'scheduled', 'ready', 'running', 'succeeded', 'failed', 'cancelled', 'dependency_failed'
);

-- Grows with each claim call and never falls: the number that fences every later write of that claim.
create sequence longshore.lease_tokens;

-- Unfinished jobs only; finished_jobs holds the others.
create table longshore.jobs (
  id uuid primary key,
  -- The one order of both stores, see the function of that name: 11 bits of priority above 42 bits of time, so a double holds it.
  score bigint not null,
  lease_token bigint not null default 0,
  created_at timestamptz not null default now(),
  lane int not null,
  -- The role that enqueued it, which is the login or what it has set as its role. A producer reads, changes and cancels only its
  -- own jobs, see is_own.sql.
  enqueued_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user))),
  state longshore.job_state not null check (state in ('waiting', 'scheduled', 'ready', 'running')),
  attempts smallint not null default 0,
  max_attempts smallint not null check (max_attempts between 1 and 1000),
  -- How often a worker died with it, apart from attempts.
  rescues smallint not null default 0 check (rescues >= 0),
  -- It was cancelled while it ran: however that run ends, the job ends as cancelled.
  is_cancelled boolean not null default false,
  worker_id int,
  started_at timestamptz,
  -- The workflow it belongs to, and its number there.
  workflow bigint,
  workflow_seq bigint,
  group_id uuid,
  -- For how many things it waits; null when for none. A cache of what edges and workflows say.
  pending int check (pending > 0),
  -- The numbers of the slot groups that a running job holds a slot of: its task's limit and its key's.
  slot smallint,
  key_slot smallint,
  -- Of the jobs of a workflow the one with the lowest number has the turn, until it has ended; the others wait for it, which
  -- counts as one in `pending`. `halts`: its failure stops the workflow.
  has_turn boolean,
  halts boolean,
  payload jsonb not null check (pg_column_size(payload) <= 8388608),
  error jsonb,
  -- The W3C trace context of its enqueue. Null where nothing is traced. Not kept in the history: by then the spans have been sent.
  trace text check (length(trace) <= 600),
  constraint score_in_bounds check (score between 0 and 9007199254740991),
  constraint running_has_a_lease check ((state = 'running') = (worker_id is not null)),
  constraint running_has_started check ((state = 'running') = (started_at is not null)),
  constraint attempts_in_bounds check (attempts between 0 and max_attempts),
  constraint only_running_holds_slots check (state = 'running' or (slot is null and key_slot is null)),
  constraint only_running_is_being_cancelled check (state = 'running' or not is_cancelled),
  constraint waiting_is_for_something check ((state = 'waiting') = (pending is not null)),
  constraint a_workflow_has_turns check (
    (workflow is null) = (workflow_seq is null) and (workflow is null) = (has_turn is null)),
  constraint nobody_runs_out_of_turn check (state = 'waiting' or has_turn is not false)
);
create index jobs_ready on longshore.jobs (lane, score, id) where state = 'ready';
create index jobs_scheduled on longshore.jobs ((score & 4398046511103)) where state = 'scheduled';
-- What each worker holds.
create index jobs_running on longshore.jobs (worker_id) where state = 'running';
create index jobs_cancelled on longshore.jobs (worker_id) where is_cancelled;
create index jobs_of_group on longshore.jobs (group_id, state) where group_id is not null;
create index jobs_of_workflow on longshore.jobs (workflow, workflow_seq) where workflow is not null;
create unique index jobs_one_turn on longshore.jobs (workflow) where has_turn;

-- Runs that were given back, tried again or rescued, for a day: their workers may still add log lines. Not logged, as past_workers.
create unlogged table longshore.past_runs (
  job_id uuid not null,
  lease_token bigint not null,
  worker_id int not null,
  ended_at timestamptz not null default now(),
  primary key (job_id, lease_token)
);
create index past_runs_by_time on longshore.past_runs (ended_at);


-- A limit is a task's own (key '') or that of one of its concurrency keys: at most `capacity` jobs run at once.
create table longshore.limits (
  id int generated always as identity primary key,
  task text not null check (length(task) between 1 and 200),
  key text not null default '' check (length(key) <= 200),
  -- Null: the limit was removed, and its slots drain.
  capacity int check (capacity between 1 and 1000000),
  -- Closes the lanes of the task. A claim that holds all slot groups and found no room sets it; a call that frees a slot unsets it.
  is_full boolean not null default false,
  unique (task, key)
) with (fillfactor = 50);

-- A limit's slots, in at most 50 rows, so that claims do not queue up for one. All rows of a limit have the same era. Each update leaves an old version
-- behind, and beside a transaction that keeps a snapshot open Postgres cannot remove them: the leader then moves the limit to the next era, see renew_slot_groups.
-- A statement that names the era, the last one that there is, does not meet the versions of earlier ones. It asks for this era or a later one: when it
-- locks a row that is renewed just then, Postgres leads it to the new version and asks again.
create table longshore.slot_groups (
  limit_id int not null,
  era int not null default 0,
  number smallint not null check (number between 0 and 49),
  capacity int not null check (capacity >= 0),
  used int not null default 0 check (used >= 0),
  -- The limit was lowered below what ran: until no group holds more than it may, claims look at all groups together.
  is_draining boolean not null default false,
  primary key (limit_id, era, number),
  constraint used_fits check (is_draining or used <= capacity)
) with (fillfactor = 50);

-- Which limits are much used, for the leader, see renew_limits: one claim in 16 notes those of which it takes slots. Hints of the last second, so a
-- crash may lose them.
create unlogged table longshore.limit_uses (
  limits int[] not null
);

-- Tasks whose limits of keys are being changed to what the task says, a page of keys after another, see change_key_limits.
create table longshore.limit_changes (
  task text primary key,
  -- The last key that this pass has come to.
  done_to text not null default '',
  -- How many keys it could not have, so that another pass follows.
  passed_over int not null default 0
);

-- How far the leader is with forgetting limits that are not used any more, see forget_limits. One row.
create table longshore.limit_looks (
  only_row boolean primary key default true check (only_row),
  -- The last limit that the pass under way has come to; null between two passes.
  done_to int,
  -- It forgets what no transaction has changed since this one; the next pass, since `marked`.
  idle_since xid8,
  marked xid8,
  marked_at timestamptz not null default '-infinity'
);
insert into longshore.limit_looks default values;

-- Workers that have room for more jobs while a limit keeps jobs of this lane from them, see leave_to_waiters. Only for tasks whose
-- jobs stand in several lanes. Hints of the last second, so a crash may lose them.
create unlogged table longshore.limit_waiters (
  lane int not null,
  worker_id int not null,
  task text not null,
  wanted int not null,
  asked_at timestamptz not null,
  -- Since then slots have been left free for it.
  reserved_at timestamptz,
  primary key (lane, worker_id)
);

-- Which lanes with a key have ready jobs, best first, so that a claim need not look at each of thousands of keys. Hints:
-- a lane may stand here several times, and with a better place (score, job_id) than its best job has, but never only with a worse one.
create table longshore.lane_heads (
  id bigint generated always as identity primary key,
  parent int not null,
  lane int not null,
  score bigint not null,
  job_id uuid not null,
  -- The limit that has no room; a call that frees one of its slots opens the lane.
  closed_by int
) with (fillfactor = 50);
create index lane_heads_open on longshore.lane_heads (parent, score, job_id) where closed_by is null;
create index lane_heads_closed on longshore.lane_heads (closed_by) where closed_by is not null;
-- Not `is not null`: that would offer it where lanes are looked up by their limit.
create index lane_heads_closed_below on longshore.lane_heads (parent) where closed_by > 0;
create index lane_heads_by_lane on longshore.lane_heads (lane);


-- Workflows: jobs with the same key run one after another, over all workers. A row while the workflow has jobs, or is halted.
create table longshore.workflows (
  id bigint generated always as identity primary key,
  key text not null unique check (length(key) between 1 and 200),
  -- The number of the next job, taken under the lock of this row: the order of the locks is the order of the jobs.
  next_seq bigint not null default 0,
  -- The job whose failure stopped it.
  halted_by uuid,
  -- Names end up on terminals.
  constraint key_without_control_characters check (key !~ E'[\\x01-\\x1f\\x7f-\\x9f]')
) with (fillfactor = 50);

-- Groups: jobs submitted together, each of which may run after others of its group. The view group_status tells from its jobs
-- whether a group is queued or dispatching: a row that each of them had to change would make them wait for each other.
create table longshore.groups (
  id uuid primary key,
  name text check (length(name) between 1 and 200),
  -- Written once, when no job is left.
  end_state text check (end_state in ('succeeded', 'failed', 'cancelled')),
  created_at timestamptz not null default now(),
  cancelled_at timestamptz,
  finished_at timestamptz,
  -- How many of its jobs have ended and are no longer in the history; once the group has ended, all of its jobs.
  succeeded int not null default 0,
  failed int not null default 0,
  cancelled int not null default 0,
  dependency_failed int not null default 0,
  -- What the watchdog saw when something last changed, and what it reported.
  seen text,
  seen_at timestamptz not null default now(),
  stuck jsonb,
  -- As of a job.
  enqueued_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user))),
  constraint ended_has_a_time check ((end_state is null) = (finished_at is null)),
  -- Names end up on terminals.
  constraint name_without_control_characters check (name !~ E'[\\x01-\\x1f\\x7f-\\x9f]')
);
create index groups_unfinished on longshore.groups (id) where finished_at is null;
create index groups_finished on longshore.groups (finished_at) where finished_at is not null;

-- What becomes of the child when its parent does not succeed.
create type longshore.edge_policy as enum ('fail', 'run', 'cancel');

-- `child` runs after `parent`. Edges stay as long as the child's history does, so that results can be read along them. An edge is
-- open while its parent is among the jobs.
create table longshore.edges (
  parent uuid not null,
  child uuid not null,
  policy longshore.edge_policy not null default 'fail',
  primary key (parent, child),
  constraint nobody_waits_for_itself check (parent <> child)
);
create index edges_by_child on longshore.edges (child, parent);


-- The history: finished jobs, partitioned by the last day on which they are kept. When that has passed, the whole partition is dropped.
-- One index serves the key and the look-up by id.
create table longshore.finished_jobs (
  id uuid not null,
  score bigint not null,
  lease_token bigint not null,
  created_at timestamptz not null,
  finished_at timestamptz not null,
  lane int not null,
  -- As of a job. 0: of no role, so only the owner sees it.
  enqueued_by oid not null default 0,
  -- Set when the job ends, see the function kept_until, and not changed by a later change of the settings.
  keep_until date not null,
  state longshore.job_state not null check (state in ('succeeded', 'failed', 'cancelled', 'dependency_failed')),
  attempts smallint not null,
  max_attempts smallint not null,
  rescues smallint not null default 0,
  started_at timestamptz,
  workflow bigint,
  workflow_seq bigint,
  group_id uuid,
  worker_id int,
  payload jsonb not null,
  result jsonb,
  error jsonb,
  primary key (id, keep_until)
) partition by range (keep_until);
create index finished_jobs_of_group on longshore.finished_jobs (group_id, state) where group_id is not null;
-- Settle must never fail because a partition is missing.
create table longshore.finished_jobs_default partition of longshore.finished_jobs default;

-- How far the upkeep is with what is to go, see forget_page: a row for each partition that is on its way out, and one for a default partition
-- that has held rows.
create table longshore.history_passes (
  partition text primary key,
  -- What goes was kept until before this day.
  before date not null,
  -- Where the next page begins.
  next_block bigint not null default 0,
  -- How many rows this pass had to leave, so that another one follows.
  passed_over int not null default 0,
  is_done boolean not null default false
);

-- A longer retention needs partitions that are not there yet. They are made together with the change, so that no job goes to the
-- default partition meanwhile; beside a default partition with very many rows the leader makes them later.
create function longshore.retention_raised() returns trigger
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
begin
  perform longshore.prepare_history();
  return null;
exception when lock_not_available then
  raise exception 'longshore: an open transaction holds the history, so the retention cannot be raised now'
    using errcode = 'lock_not_available', hint = 'Try again when that transaction has ended.';
end
$$;
create trigger retention_raised after update of retention_days on longshore.settings
  for each row when (new.retention_days > old.retention_days) execute function longshore.retention_raised();

-- Jobs that ended under a longer retention are kept as long as that said.
create function longshore.retention_lowered() returns trigger
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  -- A day more: for what is just being ended.
  new.history_until := greatest(old.history_until,
    longshore.kept_until((now() at time zone 'utc')::date + 1, old.retention_days));
  return new;
end
$$;
create trigger retention_lowered before update of retention_days on longshore.settings
  for each row when (new.retention_days < old.retention_days) execute function longshore.retention_lowered();

-- Which processes wait for the result of a job, and on which channel.
create table longshore.awaited (
  job_id uuid not null,
  waiter text not null check (waiter ~ '^[a-z0-9]{1,11}$'),
  expires_at timestamptz not null,
  -- It follows the log of the job, and is also told when there is more of it.
  wants_logs boolean not null default false,
  -- The role that waits (see acting_role.sql): it is told only of what it may read.
  asked_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user))),
  primary key (job_id, waiter)
);
create index awaited_logs on longshore.awaited (job_id) where wants_logs;
create index awaited_by_role on longshore.awaited (asked_by);


-- What handlers log while they run, a partition a day. A job never waits for these tables: other connections write them, and lines
-- that cannot be written are dropped and counted.
create table longshore.job_logs (
  job_id uuid not null,
  -- Tells the run: after a rescue there are two with the same attempt. Tokens grow, so they are also the order of the runs.
  lease_token bigint not null,
  at timestamptz not null,
  seq int not null,
  day date not null,
  attempt smallint not null,
  level text not null check (level in ('debug', 'info', 'warn', 'error')),
  message text not null,
  data jsonb,
  -- Makes it harmless to send a line again.
  primary key (job_id, lease_token, seq, day)
) partition by range (day);
create table longshore.job_logs_default partition of longshore.job_logs default;

-- How far a job is, a row for each day on which its handler said so: with partitions nothing has to be deleted. Written over and
-- over, so the pages of a partition keep room and no index holds what changes.
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


-- What has changed and Redis may not know yet. A dirty set, no log: a row names what a transaction of longshore has changed. The relay
-- reads the present state of it, brings Redis up to date and deletes the row, so late commits and repetition cannot matter.
create table longshore.outbox (
  id bigint generated always as identity primary key,
  jobs uuid[] not null default '{}',
  -- Where all jobs of the row stand, if that is one place.
  lane int,
  score bigint,
  limits int[] not null default '{}',
  -- Those whose limits were set or removed.
  lanes int[] not null default '{}',
  workers int[] not null default '{}',
  -- The process that commits it tells Redis by itself, so the relay need not be woken for it.
  hinted boolean not null default false,
  created_at timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
-- Ids do not compress.
alter table longshore.outbox alter jobs set storage external;

-- How far Redis is, by queue: its generation, and the number of the last step whose outbox rows are deleted. A Redis that is
-- behind this has lost something.
create table longshore.relayed (
  queue text primary key,
  generation text not null,
  seq bigint not null
) with (fillfactor = 50);

-- The process that does the upkeep. One row.
create table longshore.leader (
  only_row boolean primary key default true check (only_row),
  -- The number of the term: it grows with each new leader.
  epoch bigint not null default 0,
  holder text,
  expires_at timestamptz not null default '-infinity',
  -- A relay takes the lease from a worker.
  rank smallint not null default 0,
  -- The relay waits to be notified.
  asleep boolean not null default false,
  -- As of a worker.
  secret bytea,
  -- It has led from then on without a gap.
  since timestamptz not null default now()
);
insert into longshore.leader default values;

-- Duties of the upkeep that fail, as the leader says. A row while one does.
create table longshore.duties (
  name text primary key check (length(name) between 1 and 100),
  failing_since timestamptz not null default now(),
  error text not null check (length(error) <= 1000)
);

-- At the commit, as late as possible, since a transaction may be open for minutes: notify the relay if it sleeps. As its owner: at
-- the commit the current user is the caller again.
create function longshore.outbox_written() returns trigger
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if (select l.asleep from longshore.leader l) then
    perform pg_notify('longshore.outbox', '');
  end if;
  return null;
end
$$;
create constraint trigger outbox_written after insert on longshore.outbox
  deferrable initially deferred for each row when (not new.hinted) execute function longshore.outbox_written();


-- What processes may do is granted to roles of the server, see roles/grants.sql. A row once `longshore migrate --roles` was run.
create table longshore.roles (
  only_row boolean primary key default true check (only_row),
  -- The names of the roles begin with it.
  prefix text not null check (prefix ~ '^[a-z_][a-z0-9_]{0,40}$'),
  -- Of the grants that were applied last.
  checksum text not null
);


-- Views. They call no function of the schema: functions are dropped and made anew whenever they change. All but the first are for a
-- person with psql: look at one row by id, or at some with limit.

-- The one rule that says which lanes a worker may run, alive and drained or not: the caller says which of those it means.
-- `worker_tags`, `worker_constraint_tags`: a caller that knows the lane's tags can ask the GIN indexes of workers for them.
create view longshore.worker_lanes as
select w.id as worker_id, l.id as lane, l.queue, l.task, l.tag, l.constraint_tag, l.concurrency_key, l.parent,
  w.listening, w.expires_at, w.dead_at, w.drained_at, w.tags as worker_tags, w.constraint_tags as worker_constraint_tags
from longshore.workers w
join longshore.lanes l on
  /* guard: task */ l.task = any (w.tasks) /* end task */
  and /* guard: tag */ l.tag = any (w.tags) /* end tag */
  and /* guard: constraints */ l.constraint_tag = any (w.constraint_tags) /* end constraints */
  and /* guard: queue */ l.queue = any (w.queues) /* end queue */;
comment on view longshore.worker_lanes is 'Which lanes each worker may run. Quick by worker_id and by lane.';

create view longshore.job_status as
select j.id, l.task, l.queue, j.state, j.group_id, w.key as workflow,
  (2047 - (j.score >> 42))::int as priority, to_timestamp((j.score & 4398046511103) / 1000.0) as run_at,
  j.created_at, j.started_at, null::timestamptz as finished_at, j.attempts, j.max_attempts, j.rescues, j.worker_id,
  j.is_cancelled, j.error ->> 'message' as error
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
left join longshore.workflows w on w.id = j.workflow
union all
-- A workflow is deleted with its last job: then ended jobs do not know its key any more.
select f.id, l.task, l.queue, f.state, f.group_id, w.key,
  (2047 - (f.score >> 42))::int, to_timestamp((f.score & 4398046511103) / 1000.0),
  f.created_at, f.started_at, f.finished_at, f.attempts, f.max_attempts, f.rescues, f.worker_id,
  f.state = 'cancelled', f.error ->> 'message'
from longshore.finished_jobs f
left join longshore.lanes l on l.id = f.lane
left join longshore.workflows w on w.id = f.workflow;
comment on view longshore.job_status is 'Every job, finished or not. Quick by id and by group_id.';

-- Dispatching from the first claim on: a lease token is never taken back.
create view longshore.group_status as
select g.id, g.name,
  case
    when g.end_state is not null then g.end_state
    when exists (select from longshore.jobs j where j.group_id = g.id and (j.state = 'running' or j.lease_token > 0))
      or exists (select from longshore.finished_jobs f where f.group_id = g.id and f.lease_token > 0)
      or g.succeeded + g.failed > 0
    then 'dispatching'
    else 'queued'
  end as state,
  u.waiting, u.scheduled, u.ready, u.running,
  g.succeeded + e.succeeded as succeeded, g.failed + e.failed as failed, g.cancelled + e.cancelled as cancelled,
  g.dependency_failed + e.dependency_failed as dependency_failed,
  g.created_at, g.cancelled_at, g.finished_at, g.stuck
from longshore.groups g
cross join lateral (
  select count(*) filter (where j.state = 'waiting') as waiting, count(*) filter (where j.state = 'scheduled') as scheduled,
    count(*) filter (where j.state = 'ready') as ready, count(*) filter (where j.state = 'running') as running
  from longshore.jobs j where j.group_id = g.id and g.finished_at is null
) u
cross join lateral (
  select count(*) filter (where f.state = 'succeeded') as succeeded, count(*) filter (where f.state = 'failed') as failed,
    count(*) filter (where f.state = 'cancelled') as cancelled,
    count(*) filter (where f.state = 'dependency_failed') as dependency_failed
  from longshore.finished_jobs f where f.group_id = g.id and g.finished_at is null
) e;
comment on view longshore.group_status is 'Every group, with how many of its jobs are in each state. Quick by id.';

create view longshore.worker_status as
select w.id, w.name,
  case
    when w.dead_at is not null or w.expires_at <= now() then 'dead'
    when w.drained_at is not null then 'drained'
    else 'live'
  end as state,
  w.max_capacity - w.available_capacity as in_flight, w.available_capacity, w.max_capacity, w.memory_usage,
  w.event_loop_lag_ms, w.completed, w.failed, w.queues, w.tasks, w.tags, w.properties, w.started_at, w.drained_at,
  w.expires_at - w.lease_ms * interval '1 millisecond' as beat_at
from longshore.workers w;
comment on view longshore.worker_status is 'Every worker, with its capacity as of its last beat.';

-- Jobs that have not started, and why: the first of the reasons that holds; `longshore explain` tells all of them. What is left
-- out may start at any moment. A part for each state: what keeps a ready job keeps its whole lane, and is asked once for each.
create view longshore.blocked as
select j.id, l.task, l.queue, j.state, j.group_id,
  case
    when p.open > 0 then 'waits for ' || p.open || ' of ' || p.parents || ' jobs, among them ' || p.first
    when j.has_turn then 'waits for ' || j.pending || ', and nothing is open: longshore doctor --repair'
    when w.halted_by is not null then 'its workflow ' || w.key || ' was halted by the failure of job ' || w.halted_by
    when t.id is not null then 'waits for its turn in workflow ' || w.key || ', which job ' || t.id || ' has'
    when w.key is not null then 'waits for its turn in workflow ' || w.key || ', which no job has: longshore doctor --repair'
    else 'waits for ' || j.pending || ', and nothing is open: longshore doctor --repair'
  end as reason,
  j.created_at
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
left join longshore.workflows w on w.id = j.workflow
left join longshore.jobs t on t.workflow = j.workflow and t.has_turn
cross join lateral (
  select count(*) as parents, count(o.id) as open, min(o.id::text) as first
  from longshore.edges e left join longshore.jobs o on o.id = e.parent where e.child = j.id
) p
where j.state = 'waiting'
union all
select j.id, l.task, l.queue, j.state, j.group_id,
  case when d.at > now() then 'is due at ' || d.at
    else 'has been due since ' || d.at || ': a worker or longshore relay makes it ready, whichever does the upkeep'
  end,
  j.created_at
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
cross join lateral (select to_timestamp((j.score & 4398046511103) / 1000.0) as at) d
where j.state = 'scheduled'
union all
select j.id, r.task, r.queue, j.state, j.group_id, r.reason, j.created_at
from (
  select l.id, l.task, l.queue,
    case
      when not exists (
        select from longshore.worker_lanes w where w.lane = l.id and w.expires_at > now() and w.dead_at is null
      ) then 'no live worker ' || (
        select case
            when count(*) = 0 then 'serves task ' || l.task
            when not bool_or(l.queue = any (w.queues)) then 'of task ' || l.task || ' serves queue ' || l.queue
            when not bool_or(l.queue = any (w.queues) and l.tag = any (w.tags))
              then 'of task ' || l.task || ' in queue ' || l.queue || ' offers tag ' || l.tag
            else 'of task ' || l.task || ' in queue ' || l.queue || ' with tag ' || l.tag || ' has ' || substr(l.constraint_tag, 3)
          end
        from longshore.workers w where w.expires_at > now() and w.dead_at is null and l.task = any (w.tasks))
      when not exists (
        select from longshore.worker_lanes w
        where w.lane = l.id and w.expires_at > now() and w.dead_at is null and w.drained_at is null
      ) then 'every worker that may run it is drained: longshore resume'
      when m.used >= m.capacity then 'all ' || m.capacity || ' slots of task ' || l.task || ' are taken'
      when n.used >= n.capacity
        then 'all ' || n.capacity || ' slots of task ' || l.task || ' for key ' || l.concurrency_key || ' are taken'
    end as reason
  from longshore.lanes l
  left join lateral (
    select i.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = i.id) as used
    from longshore.limits i where i.task = l.task and i.key = ''
  ) m on true
  left join lateral (
    select i.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = i.id) as used
    from longshore.limits i where i.task = l.task and i.key = l.concurrency_key and i.key <> ''
  ) n on true
) r
join longshore.jobs j on j.lane = r.id and j.state = 'ready'
where r.reason is not null;
comment on view longshore.blocked is 'Jobs that have not started, and why. Quick by id and by group_id; use limit otherwise.';
