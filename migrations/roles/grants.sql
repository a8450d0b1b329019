-- Who may do what in the schema. Applied by `longshore migrate --roles`, and by each later migrate that changes a function or this
-- file; what stands here is all that the roles have: everything else is taken from them before.
--
-- Whatever changes a job is done by functions that run as their owner (`security definer`), so that nobody else needs to write
-- tables, and partitions that such a function makes or drops need no grants of their own. What jobs carry (payload, result, error,
-- logs) is read by functions only, by id; the columns beside them can be read by who keeps watch.

grant usage on schema longshore to longshore_producer, longshore_worker, longshore_relay, longshore_reader;

-- At every start: does the schema fit? And what holds for the whole deployment.
grant select on longshore.migrations, longshore.functions, longshore.release, longshore.roles, longshore.settings
  to longshore_producer, longshore_worker, longshore_relay, longshore_reader;
grant execute on function longshore.priority_of, longshore.run_at_of, longshore.run_at_ms_of, longshore.score, longshore.constraint_keys
  to longshore_producer, longshore_worker, longshore_relay, longshore_reader;

-- Producers: enqueue; read, change and cancel what is their own, see is_own.sql.
grant execute on function
  longshore.register_tasks_if_new, longshore.make_lane, longshore.need_transaction, longshore.enqueue, longshore.enqueue_plain,
  longshore.enqueue_jobs, longshore.add_to_group, longshore.add_to_groups, longshore.change, longshore.cancel, longshore.cancel_group,
  longshore.resume_workflow, longshore.read_jobs, longshore.read_logs, longshore.read_last_logs, longshore.read_progress,
  longshore.await_jobs, longshore.forget_awaited, longshore.explain, longshore.read_groups
  to longshore_producer;

-- Workers: claim and settle, and the upkeep where no relay does it. What a worker does for itself takes the secret of its life.
grant execute on function
  longshore.register_tasks, longshore.register_worker, longshore.set_properties, longshore.set_listening, longshore.best_before, longshore.unregister_worker,
  longshore.beat, longshore.settle_and_claim, longshore.complete, longshore.hold_run, longshore.read_runs, longshore.read_payload,
  longshore.read_parents, longshore.read_group_of, longshore.write_logs, longshore.close_groups, longshore.drain_worker,
  longshore.drain_workers, longshore.count_running, longshore.lead_as_worker
  to longshore_worker;
grant select (id, drained_at) on longshore.workers to longshore_worker;
grant select (id, task, concurrency_key) on longshore.lanes to longshore_worker;

-- Relays: the outbox, and how far Redis is.
grant execute on function
  longshore.relay_read, longshore.read_lane, longshore.describe_lanes, longshore.lanes_with_jobs, longshore.lead_as_relay,
  longshore.set_asleep, longshore.raise_epoch, longshore.set_dispatch, longshore.note_generation, longshore.note_built,
  longshore.note_ended, longshore.queues_with_jobs
  to longshore_relay;

-- The upkeep: each duty takes the secret of the leader.
grant execute on function
  longshore.resign, longshore.promote_due, longshore.rescue, longshore.sweep_groups, longshore.watch_groups, longshore.change_limits,
  longshore.renew_limits, longshore.forget_limits, longshore.forget_heads, longshore.forget_lanes, longshore.note_duty,
  longshore.prepare_history, longshore.forget_history, longshore.forget_expired, longshore.maintain_log_partitions, longshore.switch_to_direct
  to longshore_worker, longshore_relay;

-- Health: sessions that stop others with locks, and duties that fail.
grant select on longshore.duties to longshore_worker, longshore_relay, longshore_reader;
grant execute on function longshore.locks_held to longshore_worker, longshore_relay, longshore_reader;

-- Relays for their figures, readers to look: everything but what jobs carry.
grant select on
  longshore.tasks, longshore.lanes, longshore.lane_uses, longshore.forgetting, longshore.limits, longshore.slot_groups, longshore.limit_changes,
  longshore.lane_heads, longshore.outbox, longshore.queues, longshore.relayed, longshore.groups, longshore.edges,
  longshore.workflows, longshore.lease_tokens, longshore.history_passes
  to longshore_relay, longshore_reader;
-- Not their secrets.
grant select (
    id, name, queues, tasks, tags, properties, constraint_tags, listening, started_at, lease_ms, expires_at, dead_at,
    available_capacity, max_capacity, memory_usage, event_loop_lag_ms, completed, failed, drained_at)
  on longshore.workers to longshore_relay, longshore_reader;
grant select (only_row, epoch, holder, expires_at, rank, asleep, since) on longshore.leader to longshore_relay, longshore_reader;
grant select (
    id, score, lease_token, created_at, started_at, lane, worker_id, state, attempts, max_attempts, slot, key_slot, rescues,
    is_cancelled, group_id, pending, workflow, workflow_seq, has_turn, halts, enqueued_by)
  on longshore.jobs to longshore_relay, longshore_reader;
grant select (
    id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until, state, attempts, max_attempts, rescues,
    group_id, workflow, workflow_seq, enqueued_by)
  on longshore.finished_jobs to longshore_relay, longshore_reader;
grant select on longshore.worker_status, longshore.worker_lanes to longshore_relay, longshore_reader;
grant execute on function longshore.oldest_transaction to longshore_relay, longshore_reader;

-- Readers: dashboards, `longshore top` and people. Views tell the message of an error, and nothing else of what jobs carry.
grant select on longshore.job_status, longshore.group_status, longshore.blocked to longshore_reader;
grant execute on function longshore.explain, longshore.read_groups to longshore_reader;
