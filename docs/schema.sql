-- What a migrated database holds; views by their columns only. migrations/ says why each thing is there.
-- Written by `npm run schema:dump`. A test compares it with a newly migrated database.

create type edge_policy as enum ('fail', 'run', 'cancel');

create type job_state as enum ('waiting', 'scheduled', 'ready', 'running', 'succeeded', 'failed', 'cancelled', 'dependency_failed');

create sequence lease_tokens;

create table awaited (
  job_id uuid not null,
  waiter text not null,
  expires_at timestamp with time zone not null,
  wants_logs boolean not null default false,
  asked_by oid not null default to_regrole(quote_ident(COALESCE(NULLIF(current_setting('role'::text), 'none'::text), (SESSION_USER)::text))),
  constraint awaited_pkey PRIMARY KEY (job_id, waiter),
  constraint awaited_waiter_check CHECK ((waiter ~ '^[a-z0-9]{1,11}$'::text))
);
CREATE INDEX awaited_by_role ON awaited USING btree (asked_by);
CREATE INDEX awaited_logs ON awaited USING btree (job_id) WHERE wants_logs;

create table duties (
  name text not null,
  failing_since timestamp with time zone not null default now(),
  error text not null,
  constraint duties_error_check CHECK ((length(error) <= 1000)),
  constraint duties_name_check CHECK (((length(name) >= 1) AND (length(name) <= 100))),
  constraint duties_pkey PRIMARY KEY (name)
);

create table edges (
  parent uuid not null,
  child uuid not null,
  policy edge_policy not null default 'fail'::edge_policy,
  constraint edges_pkey PRIMARY KEY (parent, child),
  constraint nobody_waits_for_itself CHECK ((parent <> child))
);
CREATE INDEX edges_by_child ON edges USING btree (child, parent);

create table finished_jobs (
  id uuid not null,
  score bigint not null,
  lease_token bigint not null,
  created_at timestamp with time zone not null,
  finished_at timestamp with time zone not null,
  lane integer not null,
  enqueued_by oid not null default 0,
  keep_until date not null,
  state job_state not null,
  attempts smallint not null,
  max_attempts smallint not null,
  rescues smallint not null default 0,
  started_at timestamp with time zone,
  workflow bigint,
  workflow_seq bigint,
  group_id uuid,
  worker_id integer,
  payload jsonb not null,
  result jsonb,
  error jsonb,
  constraint finished_jobs_pkey PRIMARY KEY (id, keep_until),
  constraint finished_jobs_state_check CHECK ((state = ANY (ARRAY['succeeded'::job_state, 'failed'::job_state, 'cancelled'::job_state, 'dependency_failed'::job_state])))
) partition by RANGE (keep_until);
CREATE INDEX finished_jobs_of_group ON ONLY finished_jobs USING btree (group_id, state) WHERE (group_id IS NOT NULL);

-- table finished_jobs_default, a partition

create table forgetting (
  only_row boolean not null default true,
  step text not null default 'resting'::text,
  began_at timestamp with time zone not null default now(),
  next_at timestamp with time zone not null default (now() + '01:00:00'::interval),
  lane integer not null default 0,
  job uuid not null default '00000000-0000-0000-0000-000000000000'::uuid,
  marked integer not null default 0,
  wait_for xid8,
  void_from timestamp with time zone,
  constraint forgetting_only_row_check CHECK (only_row),
  constraint forgetting_pkey PRIMARY KEY (only_row),
  constraint forgetting_step_check CHECK ((step = ANY (ARRAY['resting'::text, 'marking'::text, 'waiting'::text, 'clearing'::text, 'names'::text])))
) with (fillfactor=50);

create table functions (
  name text not null,
  checksum text not null,
  constraint functions_pkey PRIMARY KEY (name)
);

create table groups (
  id uuid not null,
  name text,
  end_state text,
  created_at timestamp with time zone not null default now(),
  cancelled_at timestamp with time zone,
  finished_at timestamp with time zone,
  succeeded integer not null default 0,
  failed integer not null default 0,
  cancelled integer not null default 0,
  dependency_failed integer not null default 0,
  seen text,
  seen_at timestamp with time zone not null default now(),
  stuck jsonb,
  enqueued_by oid not null default to_regrole(quote_ident(COALESCE(NULLIF(current_setting('role'::text), 'none'::text), (SESSION_USER)::text))),
  constraint ended_has_a_time CHECK (((end_state IS NULL) = (finished_at IS NULL))),
  constraint groups_end_state_check CHECK ((end_state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text]))),
  constraint groups_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint groups_pkey PRIMARY KEY (id),
  constraint name_without_control_characters CHECK ((name !~ '[\x01-\x1f\x7f-\x9f]'::text))
);
CREATE INDEX groups_finished ON groups USING btree (finished_at) WHERE (finished_at IS NOT NULL);
CREATE INDEX groups_unfinished ON groups USING btree (id) WHERE (finished_at IS NULL);

create table history_passes (
  partition text not null,
  before date not null,
  next_block bigint not null default 0,
  passed_over integer not null default 0,
  is_done boolean not null default false,
  constraint history_passes_pkey PRIMARY KEY (partition)
);

create table job_logs (
  job_id uuid not null,
  lease_token bigint not null,
  at timestamp with time zone not null,
  seq integer not null,
  day date not null,
  attempt smallint not null,
  level text not null,
  message text not null,
  data jsonb,
  constraint job_logs_level_check CHECK ((level = ANY (ARRAY['debug'::text, 'info'::text, 'warn'::text, 'error'::text]))),
  constraint job_logs_pkey PRIMARY KEY (job_id, lease_token, seq, day)
) partition by RANGE (day);

-- table job_logs_default, a partition

create table job_progress (
  job_id uuid not null,
  lease_token bigint not null,
  at timestamp with time zone not null,
  done double precision not null,
  total double precision,
  day date not null,
  attempt smallint not null,
  constraint job_progress_pkey PRIMARY KEY (job_id, day)
) partition by RANGE (day);

-- table job_progress_default, a partition with (fillfactor=50)

create table jobs (
  id uuid not null,
  score bigint not null,
  lease_token bigint not null default 0,
  created_at timestamp with time zone not null default now(),
  lane integer not null,
  enqueued_by oid not null default to_regrole(quote_ident(COALESCE(NULLIF(current_setting('role'::text), 'none'::text), (SESSION_USER)::text))),
  state job_state not null,
  attempts smallint not null default 0,
  max_attempts smallint not null,
  rescues smallint not null default 0,
  is_cancelled boolean not null default false,
  worker_id integer,
  started_at timestamp with time zone,
  workflow bigint,
  workflow_seq bigint,
  group_id uuid,
  pending integer,
  slot smallint,
  key_slot smallint,
  has_turn boolean,
  halts boolean,
  payload jsonb not null,
  error jsonb,
  trace text,
  constraint a_workflow_has_turns CHECK ((((workflow IS NULL) = (workflow_seq IS NULL)) AND ((workflow IS NULL) = (has_turn IS NULL)))),
  constraint attempts_in_bounds CHECK (((attempts >= 0) AND (attempts <= max_attempts))),
  constraint jobs_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
  constraint jobs_payload_check CHECK ((pg_column_size(payload) <= 8388608)),
  constraint jobs_pending_check CHECK ((pending > 0)),
  constraint jobs_pkey PRIMARY KEY (id),
  constraint jobs_rescues_check CHECK ((rescues >= 0)),
  constraint jobs_state_check CHECK ((state = ANY (ARRAY['waiting'::job_state, 'scheduled'::job_state, 'ready'::job_state, 'running'::job_state]))),
  constraint jobs_trace_check CHECK ((length(trace) <= 600)),
  constraint nobody_runs_out_of_turn CHECK (((state = 'waiting'::job_state) OR (has_turn IS NOT FALSE))),
  constraint only_running_holds_slots CHECK (((state = 'running'::job_state) OR ((slot IS NULL) AND (key_slot IS NULL)))),
  constraint only_running_is_being_cancelled CHECK (((state = 'running'::job_state) OR (NOT is_cancelled))),
  constraint running_has_a_lease CHECK (((state = 'running'::job_state) = (worker_id IS NOT NULL))),
  constraint running_has_started CHECK (((state = 'running'::job_state) = (started_at IS NOT NULL))),
  constraint score_in_bounds CHECK (((score >= 0) AND (score <= '9007199254740991'::bigint))),
  constraint waiting_is_for_something CHECK (((state = 'waiting'::job_state) = (pending IS NOT NULL)))
);
CREATE INDEX jobs_cancelled ON jobs USING btree (worker_id) WHERE is_cancelled;
CREATE INDEX jobs_of_group ON jobs USING btree (group_id, state) WHERE (group_id IS NOT NULL);
CREATE INDEX jobs_of_workflow ON jobs USING btree (workflow, workflow_seq) WHERE (workflow IS NOT NULL);
CREATE UNIQUE INDEX jobs_one_turn ON jobs USING btree (workflow) WHERE has_turn;
CREATE INDEX jobs_ready ON jobs USING btree (lane, score, id) WHERE (state = 'ready'::job_state);
CREATE INDEX jobs_running ON jobs USING btree (worker_id) WHERE (state = 'running'::job_state);
CREATE INDEX jobs_scheduled ON jobs USING btree (((score & '4398046511103'::bigint))) WHERE (state = 'scheduled'::job_state);

create table lane_heads (
  id bigint generated always as identity,
  parent integer not null,
  lane integer not null,
  score bigint not null,
  job_id uuid not null,
  closed_by integer,
  constraint lane_heads_pkey PRIMARY KEY (id)
) with (fillfactor=50);
CREATE INDEX lane_heads_by_lane ON lane_heads USING btree (lane);
CREATE INDEX lane_heads_closed ON lane_heads USING btree (closed_by) WHERE (closed_by IS NOT NULL);
CREATE INDEX lane_heads_closed_below ON lane_heads USING btree (parent) WHERE (closed_by > 0);
CREATE INDEX lane_heads_open ON lane_heads USING btree (parent, score, job_id) WHERE (closed_by IS NULL);

create table lane_uses (
  lane integer not null
);
CREATE INDEX lane_uses_by_lane ON lane_uses USING btree (lane);

create table lanes (
  id integer generated always as identity,
  queue text not null,
  task text not null,
  tag text not null,
  constraint_tag text not null,
  concurrency_key text not null default ''::text,
  parent integer,
  unused_since timestamp with time zone,
  constraint constraint_tag_is_canonical CHECK ((constraint_tag ~ '^c:([a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+(,[a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+){0,2})?$'::text)),
  constraint lanes_concurrency_key_check CHECK ((length(concurrency_key) <= 200)),
  constraint lanes_constraint_tag_check CHECK (((constraint_tag ~~ 'c:%'::text) AND (length(constraint_tag) <= 500))),
  constraint lanes_pkey PRIMARY KEY (id),
  constraint lanes_queue_check CHECK (((length(queue) >= 1) AND (length(queue) <= 100))),
  constraint lanes_tag_check CHECK (((length(tag) >= 1) AND (length(tag) <= 100))),
  constraint lanes_task_check CHECK (((length(task) >= 1) AND (length(task) <= 200))),
  constraint names_without_control_characters CHECK (((((queue || task) || tag) || concurrency_key) !~ '[\x01-\x1f\x7f-\x9f]'::text)),
  constraint only_a_key_has_a_parent CHECK (((concurrency_key = ''::text) = (parent IS NULL)))
);
CREATE INDEX lanes_by_key ON lanes USING btree (task, concurrency_key, tag, constraint_tag, queue) WHERE (concurrency_key <> ''::text);
CREATE INDEX lanes_by_kind ON lanes USING btree (task, tag, constraint_tag, queue) WHERE (concurrency_key = ''::text);
CREATE INDEX lanes_by_parent ON lanes USING btree (parent) WHERE (parent IS NOT NULL);
CREATE INDEX lanes_by_queue ON lanes USING btree (queue, id) WHERE (concurrency_key = ''::text);
CREATE INDEX lanes_by_queue_with_key ON lanes USING btree (queue, id) WHERE (concurrency_key <> ''::text);

create table leader (
  only_row boolean not null default true,
  epoch bigint not null default 0,
  holder text,
  expires_at timestamp with time zone not null default '-infinity'::timestamp with time zone,
  rank smallint not null default 0,
  asleep boolean not null default false,
  secret bytea,
  since timestamp with time zone not null default now(),
  constraint leader_only_row_check CHECK (only_row),
  constraint leader_pkey PRIMARY KEY (only_row)
);

create table limit_changes (
  task text not null,
  done_to text not null default ''::text,
  passed_over integer not null default 0,
  constraint limit_changes_pkey PRIMARY KEY (task)
);

create table limit_looks (
  only_row boolean not null default true,
  done_to integer,
  idle_since xid8,
  marked xid8,
  marked_at timestamp with time zone not null default '-infinity'::timestamp with time zone,
  constraint limit_looks_only_row_check CHECK (only_row),
  constraint limit_looks_pkey PRIMARY KEY (only_row)
);

create unlogged table limit_uses (
  limits integer[] not null
);

create unlogged table limit_waiters (
  lane integer not null,
  worker_id integer not null,
  task text not null,
  wanted integer not null,
  asked_at timestamp with time zone not null,
  reserved_at timestamp with time zone,
  constraint limit_waiters_pkey PRIMARY KEY (lane, worker_id)
);

create table limits (
  id integer generated always as identity,
  task text not null,
  key text not null default ''::text,
  capacity integer,
  is_full boolean not null default false,
  constraint limits_capacity_check CHECK (((capacity >= 1) AND (capacity <= 1000000))),
  constraint limits_key_check CHECK ((length(key) <= 200)),
  constraint limits_pkey PRIMARY KEY (id),
  constraint limits_task_check CHECK (((length(task) >= 1) AND (length(task) <= 200))),
  constraint limits_task_key_key UNIQUE (task, key)
) with (fillfactor=50);

create table migrations (
  version integer not null,
  name text not null,
  applied_at timestamp with time zone not null default now(),
  constraint migrations_pkey PRIMARY KEY (version)
);

create table outbox (
  id bigint generated always as identity,
  jobs uuid[] not null default '{}'::uuid[],
  lane integer,
  score bigint,
  limits integer[] not null default '{}'::integer[],
  lanes integer[] not null default '{}'::integer[],
  workers integer[] not null default '{}'::integer[],
  hinted boolean not null default false,
  created_at timestamp with time zone not null default clock_timestamp(),
  constraint outbox_pkey PRIMARY KEY (id)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
alter table outbox alter jobs set storage external;
CREATE CONSTRAINT TRIGGER outbox_written AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((NOT new.hinted)) EXECUTE FUNCTION outbox_written();

create unlogged table past_runs (
  job_id uuid not null,
  lease_token bigint not null,
  worker_id integer not null,
  ended_at timestamp with time zone not null default now(),
  constraint past_runs_pkey PRIMARY KEY (job_id, lease_token)
);
CREATE INDEX past_runs_by_time ON past_runs USING btree (ended_at);

create unlogged table past_workers (
  id integer not null,
  secret bytea,
  ended_at timestamp with time zone not null default now(),
  constraint past_workers_pkey PRIMARY KEY (id)
);

create table queues (
  name text not null,
  schedule_mode text,
  balance_strategy text,
  fanout_width integer,
  constraint queues_balance_strategy_check CHECK ((balance_strategy = ANY (ARRAY['least-queue'::text, 'round-robin'::text, 'random'::text]))),
  constraint queues_fanout_width_check CHECK (((fanout_width >= 0) AND (fanout_width <= 1000))),
  constraint queues_name_check CHECK (((length(name) >= 1) AND (length(name) <= 100))),
  constraint queues_pkey PRIMARY KEY (name),
  constraint queues_schedule_mode_check CHECK ((schedule_mode = ANY (ARRAY['fanout'::text, 'balanced'::text])))
);

create table relayed (
  queue text not null,
  generation text not null,
  seq bigint not null,
  constraint relayed_pkey PRIMARY KEY (queue)
) with (fillfactor=50);

create table release (
  only_row boolean not null default true,
  version text not null,
  serves_from text not null,
  constraint release_only_row_check CHECK (only_row),
  constraint release_pkey PRIMARY KEY (only_row)
);

create table roles (
  only_row boolean not null default true,
  prefix text not null,
  checksum text not null,
  constraint roles_only_row_check CHECK (only_row),
  constraint roles_pkey PRIMARY KEY (only_row),
  constraint roles_prefix_check CHECK ((prefix ~ '^[a-z_][a-z0-9_]{0,40}$'::text))
);

create table settings (
  only_row boolean not null default true,
  dispatch text not null default 'direct'::text,
  retention_days integer not null default 7,
  property_keys text[] not null default '{gpu,mem,region}'::text[],
  deployment text not null default substr(replace((gen_random_uuid())::text, '-'::text, ''::text), 1, 12),
  watchdog_ms bigint not null default 600000,
  watchdog_cancels boolean not null default false,
  most_waits integer not null default 1000000,
  max_queues integer not null default 1000,
  history_until date not null default '2000-01-01'::date,
  constraint at_most_three_property_keys CHECK ((cardinality(property_keys) <= 3)),
  constraint property_keys_are_words CHECK (((array_to_string(property_keys, ','::text) ~ '^([a-z][a-z0-9_]{0,39}(,[a-z][a-z0-9_]{0,39})*)?$'::text) AND (cardinality(string_to_array(array_to_string(property_keys, ','::text), ','::text)) = cardinality(property_keys)))),
  constraint property_keys_differ CHECK ((COALESCE((property_keys[1] <> property_keys[2]), true) AND COALESCE((property_keys[1] <> property_keys[3]), true) AND COALESCE((property_keys[2] <> property_keys[3]), true))),
  constraint settings_deployment_check CHECK ((deployment ~ '^[a-z0-9]{1,40}$'::text)),
  constraint settings_dispatch_check CHECK ((dispatch = ANY (ARRAY['direct'::text, 'redis'::text]))),
  constraint settings_max_queues_check CHECK (((max_queues >= 1) AND (max_queues <= 1000000))),
  constraint settings_most_waits_check CHECK (((most_waits >= 1) AND (most_waits <= 100000000))),
  constraint settings_only_row_check CHECK (only_row),
  constraint settings_pkey PRIMARY KEY (only_row),
  constraint settings_retention_days_check CHECK (((retention_days >= 1) AND (retention_days <= 3650))),
  constraint settings_watchdog_ms_check CHECK (((watchdog_ms >= 100) AND (watchdog_ms <= '31536000000'::bigint)))
);
CREATE TRIGGER retention_lowered BEFORE UPDATE OF retention_days ON settings FOR EACH ROW WHEN ((new.retention_days < old.retention_days)) EXECUTE FUNCTION retention_lowered();
CREATE TRIGGER retention_raised AFTER UPDATE OF retention_days ON settings FOR EACH ROW WHEN ((new.retention_days > old.retention_days)) EXECUTE FUNCTION retention_raised();

create table slot_groups (
  limit_id integer not null,
  era integer not null default 0,
  number smallint not null,
  capacity integer not null,
  used integer not null default 0,
  is_draining boolean not null default false,
  constraint slot_groups_capacity_check CHECK ((capacity >= 0)),
  constraint slot_groups_number_check CHECK (((number >= 0) AND (number <= 49))),
  constraint slot_groups_pkey PRIMARY KEY (limit_id, era, number),
  constraint slot_groups_used_check CHECK ((used >= 0)),
  constraint used_fits CHECK ((is_draining OR (used <= capacity)))
) with (fillfactor=50);

create table tasks (
  name text not null,
  queue text not null,
  tag text not null,
  max_attempts smallint not null,
  registered_at timestamp with time zone not null default now(),
  concurrency integer,
  concurrency_per_key integer,
  max_rescues smallint not null default 10,
  constraint names_without_control_characters CHECK ((((name || queue) || tag) !~ '[\x01-\x1f\x7f-\x9f]'::text)),
  constraint tasks_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 1000000))),
  constraint tasks_concurrency_per_key_check CHECK (((concurrency_per_key >= 1) AND (concurrency_per_key <= 1000000))),
  constraint tasks_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
  constraint tasks_max_rescues_check CHECK (((max_rescues >= 0) AND (max_rescues <= 1000))),
  constraint tasks_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint tasks_pkey PRIMARY KEY (name),
  constraint tasks_queue_check CHECK (((length(queue) >= 1) AND (length(queue) <= 100))),
  constraint tasks_tag_check CHECK (((length(tag) >= 1) AND (length(tag) <= 100)))
);

create table workers (
  id integer generated always as identity,
  name text not null,
  queues text[] not null,
  tasks text[] not null,
  tags text[] not null,
  properties jsonb not null default '{}'::jsonb,
  constraint_tags text[] not null,
  listening boolean not null default false,
  started_at timestamp with time zone not null default now(),
  lease_ms integer not null default 15000,
  expires_at timestamp with time zone not null default (now() + '00:00:15'::interval),
  dead_at timestamp with time zone,
  drained_at timestamp with time zone,
  available_capacity integer,
  max_capacity integer,
  memory_usage real,
  event_loop_lag_ms real,
  completed bigint,
  failed bigint,
  stuck_handlers integer not null default 0,
  stuck_since timestamp with time zone,
  waits_alone uuid,
  secret bytea,
  constraint arrays_in_bounds CHECK (((cardinality(tags) <= 1000) AND (cardinality(tasks) <= 10000) AND (cardinality(queues) <= 1000))),
  constraint at_most_eight_constraint_tags CHECK ((((cardinality(constraint_tags) >= 1) AND (cardinality(constraint_tags) <= 8)) AND ('c:'::text = ANY (constraint_tags)))),
  constraint offers_in_bounds CHECK (((cardinality(tags) > 0) AND (cardinality(tasks) > 0) AND (cardinality(queues) > 0) AND (NOT (''::text = ANY (((tags || tasks) || queues)))) AND (array_position(((tags || tasks) || queues), NULL::text) IS NULL))),
  constraint workers_lease_ms_check CHECK (((lease_ms >= 100) AND (lease_ms <= 3600000))),
  constraint workers_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint workers_pkey PRIMARY KEY (id),
  constraint workers_properties_check CHECK ((jsonb_typeof(properties) = 'object'::text))
);
CREATE INDEX workers_by_constraint_tag ON workers USING gin (constraint_tags) WITH (fastupdate=off);
CREATE INDEX workers_by_tag ON workers USING gin (tags) WITH (fastupdate=off);
CREATE INDEX workers_listening ON workers USING btree (id) WHERE listening;

create table workflows (
  id bigint generated always as identity,
  key text not null,
  next_seq bigint not null default 0,
  halted_by uuid,
  constraint key_without_control_characters CHECK ((key !~ '[\x01-\x1f\x7f-\x9f]'::text)),
  constraint workflows_key_check CHECK (((length(key) >= 1) AND (length(key) <= 200))),
  constraint workflows_key_key UNIQUE (key),
  constraint workflows_pkey PRIMARY KEY (id)
) with (fillfactor=50);

-- view blocked (id uuid, task text, queue text, state job_state, group_id uuid, reason text, created_at timestamp with time zone)

-- view group_status (id uuid, name text, state text, waiting bigint, scheduled bigint, ready bigint, running bigint, succeeded bigint, failed bigint, cancelled bigint, dependency_failed bigint, created_at timestamp with time zone, cancelled_at timestamp with time zone, finished_at timestamp with time zone, stuck jsonb)

-- view job_status (id uuid, task text, queue text, state job_state, group_id uuid, workflow text, priority integer, run_at timestamp with time zone, created_at timestamp with time zone, started_at timestamp with time zone, finished_at timestamp with time zone, attempts smallint, max_attempts smallint, rescues smallint, worker_id integer, is_cancelled boolean, error text)

-- view worker_lanes (worker_id integer, lane integer, queue text, task text, tag text, constraint_tag text, concurrency_key text, parent integer, listening boolean, expires_at timestamp with time zone, dead_at timestamp with time zone, drained_at timestamp with time zone, worker_tags text[], worker_constraint_tags text[])

-- view worker_status (id integer, name text, state text, in_flight integer, available_capacity integer, max_capacity integer, memory_usage real, event_loop_lag_ms real, completed bigint, failed bigint, queues text[], tasks text[], tags text[], properties jsonb, started_at timestamp with time zone, drained_at timestamp with time zone, beat_at timestamp with time zone)
