-- Workflows: jobs with the same key run one after another, over all workers.

-- A row while the workflow has jobs, or is halted. Whoever enqueues into it takes its number under the lock of this row:
-- the order of the locks is the order of the jobs. `halted_by`: the job whose failure stopped it.
create table longshore.workflows (
  id bigint generated always as identity primary key,
  key text not null unique check (length(key) between 1 and 200),
  next_seq bigint not null default 0,
  halted_by uuid
) with (fillfactor = 50);

-- `has_turn`: the job with the lowest number has it, until it has ended; the others wait for it, which counts as one in
-- `pending`. `halts`: its failure stops the workflow.
alter table longshore.jobs
  add workflow bigint,
  add workflow_seq bigint,
  add has_turn boolean,
  add halts boolean,
  add constraint a_workflow_has_turns check (
    (workflow is null) = (workflow_seq is null) and (workflow is null) = (has_turn is null)),
  add constraint nobody_runs_out_of_turn check (state = 'waiting' or has_turn is not false);
create index jobs_of_workflow on longshore.jobs (workflow, workflow_seq) where workflow is not null;
create unique index jobs_one_turn on longshore.jobs (workflow) where has_turn;

alter table longshore.finished_jobs
  add workflow bigint,
  add workflow_seq bigint;
