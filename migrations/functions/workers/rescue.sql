-- Take back the jobs of dead workers, at most p_limit. A worker is dead when its lease has run out and the caller has led for at least
-- the length of that lease, as it says and as its row says: after an outage of Postgres every lease has run out, and workers get the
-- time to beat again.
-- A rescue is no failed attempt; a job with more than its task's max_rescues fails as poison, and one that was being
-- cancelled is cancelled. Does not wait for locked jobs: they are left for the next call, and so is the worker's row.
-- public: worker, relay
create function longshore.rescue(
  p_leading_ms bigint, p_limit int, p_holder text default null, p_secret bytea default null
)
returns table (worker_id int, name text, rescued int, ended int, is_gone boolean)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '200ms'
-- By what the dead workers held, however many jobs there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_dead int[] := '{}';
  v_worker record;
  v_job longshore.jobs;
  v_max_rescues smallint;
  v_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_rescued int[] := '{}';
  v_ended int[] := '{}';
  v_ready uuid[] := '{}';
  v_freed int[] := '{}';
begin
  p_leading_ms := least(p_leading_ms, longshore.need_leader(p_holder, p_secret));
  p_limit := least(p_limit, 10000);
  for v_worker in
    select w.id from longshore.workers w
    where w.dead_at is not null or (
      /* guard: expired */ w.expires_at < clock_timestamp() /* end expired */
      /* guard: led-for-a-lease */ and w.lease_ms <= p_leading_ms /* end led-for-a-lease */)
    order by w.id
  loop
    -- A claim under way holds it until its commit; none begins while it is waited for or held here.
    begin
      /* point: before-lock */
      perform pg_advisory_xact_lock(hashtext('longshore.worker'), v_worker.id);
    exception when lock_not_available then
      -- A worker that does not read the answer to its claim (it is paused, or cut off) keeps the transaction open, and with
      -- it the jobs and their slots, if the answer is larger than what the network buffers.
      perform longshore.end_claims(v_worker.id);
      continue;
    end;
    -- It may have beaten meanwhile.
    perform from longshore.workers w
    where w.id = v_worker.id
      /* guard: look-again */ and (
        w.dead_at is not null or /* guard: expired */ w.expires_at < clock_timestamp() /* end expired */) /* end look-again */
    for update skip locked;
    continue when not found;
    update longshore.workers w set dead_at = clock_timestamp(), listening = false
    where w.id = v_worker.id and w.dead_at is null;
    v_dead := v_dead || v_worker.id;
  end loop;
  if v_dead = '{}' then
    return;
  end if;

  -- Found by the worker and then sorted: in the order of their ids the planner could read all jobs to find them.
  for v_job in
    with held as materialized (
      select j.id from unnest(v_dead) as w(id)
      cross join lateral (select j.id from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0) j
    )
    select j.*
    from (select h.id from held h order by h.id) h
    cross join lateral (
      select j.* from longshore.jobs j where j.id = h.id and j.worker_id = any (v_dead) offset 0
      /* guard: job-lock */ for no key update skip locked /* end job-lock */
    ) j
    limit p_limit
  loop
    /* point: job-held */
    select coalesce(max(t.max_rescues), 10) into v_max_rescues
    from longshore.lanes l join longshore.tasks t on t.name = l.task where l.id = v_job.lane;
    /* guard: attempt-back */ v_job.attempts := v_job.attempts - 1; /* end attempt-back */
    v_job.rescues := v_job.rescues + 1;
    if /* guard: cancelled-ends */ v_job.is_cancelled or /* end cancelled-ends */
      /* guard: poison */ v_job.rescues > v_max_rescues /* end poison */
    then
      v_job.rescues := v_job.rescues - 1;
      -- Another transaction locks the job or one that waits for it.
      continue when longshore.end_linked(
        v_job, case when v_job.is_cancelled then 'cancelled' else 'failed' end::longshore.job_state, null,
        case when not v_job.is_cancelled then jsonb_build_object('code', 'POISONED', 'message', format(
          'its worker died %s times while it ran, the last time worker %s: it is taken for the cause',
          v_max_rescues + 1, v_job.worker_id)) end) is null;
      v_ended := v_ended || v_job.worker_id;
    else
      perform longshore.send_back(v_job, null, v_job.error);
      v_rescued := v_rescued || v_job.worker_id;
      v_ready := v_ready || v_job.id;
    end if;
    if v_job.slot is not null or v_job.key_slot is not null then
      v_lanes := v_lanes || v_job.lane;
      v_slots := v_slots || v_job.slot;
      v_key_slots := v_key_slots || v_job.key_slot;
    end if;
  end loop;
  if v_lanes is not null then
    /* guard: free-slots */ v_freed := longshore.free_slots(v_lanes, v_slots, v_key_slots);
    perform longshore.reopen(v_freed); /* end free-slots */
  end if;
  /* guard: tell-relay */ perform longshore.note_changes(
    v_ready, p_limits => v_freed /* guard: tell-of-dead */ , p_workers => v_dead /* end tell-of-dead */); /* end tell-relay */

  return query
  with gone as (
    delete from longshore.workers w
    where w.id = any (v_dead)
      /* guard: no-job-left */ and not exists (
        select from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0) /* end no-job-left */
    returning w.id, w.secret
  ), past as (
    insert into longshore.past_workers (id, secret) select g.id, g.secret from gone g
  )
  select w.id, w.name, cardinality(array_positions(v_rescued, w.id)), cardinality(array_positions(v_ended, w.id)),
    exists (select from gone g where g.id = w.id)
  from longshore.workers w where w.id = any (v_dead) order by w.id;
end
$$;
