-- How many jobs of a task may run at once, over all workers; and how many of one concurrency key of a task.

alter table longshore.tasks
  add concurrency int check (concurrency between 1 and 1000000),
  add concurrency_per_key int check (concurrency_per_key between 1 and 1000000);

-- Jobs with a concurrency key have a lane for each key, below the lane of the same kind without one: its parent.
alter table longshore.lanes
  add concurrency_key text not null default '' check (length(concurrency_key) <= 200),
  add parent int,
  add constraint only_a_key_has_a_parent check ((concurrency_key = '') = (parent is null));
drop index longshore.lanes_by_kind;
create index lanes_by_kind on longshore.lanes (task, tag, constraint_tag, queue) where concurrency_key = '';
create index lanes_by_key on longshore.lanes (task, concurrency_key, tag, constraint_tag, queue)
  where concurrency_key <> '';

-- A limit is a task's own (key '') or that of one of its keys. No capacity: it has been removed, and what holds its
-- slots drains. `is_full` closes the lanes of a task: set by a claim that holds all slot groups and found no room,
-- unset by whoever frees a slot.
create table longshore.limits (
  id int generated always as identity primary key,
  task text not null check (length(task) between 1 and 200),
  key text not null default '' check (length(key) <= 200),
  capacity int check (capacity between 1 and 1000000),
  is_full boolean not null default false,
  unique (task, key)
) with (fillfactor = 50);

-- A limit's slots, in at most 50 rows, so that claims do not queue up for one. `is_draining`: the limit was lowered
-- below what ran; then its groups are looked at together until none holds more than it may.
create table longshore.slot_groups (
  limit_id int not null,
  number smallint not null check (number between 0 and 49),
  capacity int not null check (capacity >= 0),
  used int not null default 0 check (used >= 0),
  is_draining boolean not null default false,
  primary key (limit_id, number),
  constraint used_fits check (is_draining or used <= capacity)
) with (fillfactor = 50);

-- Which lanes with a key have ready jobs, best first, so that a claim need not look at each of thousands of keys. Hints:
-- a lane may stand here several times and with a better place (score, job_id) than its best job has, never with a worse one
-- only.
-- `closed_by`: the limit that has no room; whoever frees a slot of it opens the lane.
create table longshore.lane_heads (
  id bigint generated always as identity primary key,
  parent int not null,
  lane int not null,
  score bigint not null,
  job_id uuid not null,
  closed_by int
) with (fillfactor = 50);
create index lane_heads_open on longshore.lane_heads (parent, score, job_id) where closed_by is null;
create index lane_heads_closed on longshore.lane_heads (closed_by) where closed_by is not null;
create index lane_heads_by_lane on longshore.lane_heads (lane);

-- The numbers of the slot groups that a running job holds a slot of: its task's limit and its key's.
alter table longshore.jobs
  add slot smallint,
  add key_slot smallint,
  add constraint only_running_holds_slots check (state = 'running' or (slot is null and key_slot is null));
