-- Pass on the end of jobs to those that wait for it. The caller has ended p_ids as p_states in this transaction, in an
-- earlier statement; p_workflows are those in which they had the turn, p_halted those that a failure stops, by p_halted_by.
-- Dependents are counted down, or end by the policy of the edge, and theirs with them; the turn of a workflow goes to the
-- lowest number left. p_doomed, p_doomed_states: waiting jobs that are to end as well. Returns what became ready.
--
-- A dependent of a job that has not ended is waiting or gone, and no transaction can add one to a locked job. So dependents are
-- found without locks, locked in order and looked for again, until nothing new is found. Waits for locks as long as the caller's
-- lock_timeout says.
-- public: owner
create function longshore.pass_on(
  p_ids uuid[], p_states longshore.job_state[], p_workflows bigint[] default '{}',
  p_halted bigint[] default '{}', p_halted_by uuid[] default '{}',
  p_doomed uuid[] default '{}', p_doomed_states longshore.job_state[] default '{}'
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- All rows are found by their keys, one by one, whatever the statistics say: hence `offset 0`, which the planner does not see
-- through. On a group of 10,000 it read all edges for each of 500 jobs.
set enable_seqscan = off
-- As in settle_and_claim.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_ids uuid[] := p_ids;
  v_states longshore.job_state[] := p_states;
  v_workflows bigint[] := coalesce(p_workflows, '{}');
  v_halted bigint[] := coalesce(p_halted, '{}');
  v_halted_by uuid[] := coalesce(p_halted_by, '{}');
  v_doomed uuid[];
  v_doomed_states longshore.job_state[];
  v_held uuid[] := '{}';
  v_causes jsonb;
  v_errors jsonb;
  v_children uuid[];
  v_next uuid[] := '{}';
  v_heads uuid[];
  v_lane record;
  v_ready uuid[] := '{}';
  v_due_soon boolean := false;
  v_now_ms bigint := floor(extract(epoch from clock_timestamp()) * 1000);
begin
  -- Callers that add jobs give no p_ids: they have locked the rows that they rely on.
  /* guard: read-committed */ perform longshore.need_read_committed('end a job that others may wait for')
  where p_ids <> '{}'; /* end read-committed */
  if p_doomed <> '{}' or exists (select from unnest(p_states) as s(state) where s.state <> 'succeeded') then
    loop
      with recursive doomed(id, state) as (
        select d.id, d.state from unnest(p_doomed, p_doomed_states) as d(id, state)
        cross join lateral (select from longshore.jobs j where j.id = d.id offset 0) j
        /* guard: doom-children */ union
        select e.child, longshore.doom_of(e.policy)
        from unnest(p_ids, p_states) as p(id, state)
        cross join lateral (
          select e.* from longshore.edges e
          where e.parent = p.id /* guard: run-policy */ and e.policy <> 'run' /* end run-policy */ offset 0) e
        cross join lateral (select from longshore.jobs j where j.id = e.child offset 0) j
        where p.state <> 'succeeded' /* end doom-children */
        /* guard: doom-further */ union
        select e.child, longshore.doom_of(e.policy)
        from doomed d
        cross join lateral (select e.* from longshore.edges e where e.parent = d.id and e.policy <> 'run' offset 0) e
        cross join lateral (select from longshore.jobs j where j.id = e.child offset 0) j /* end doom-further */
      )
      select coalesce(array_agg(d.id order by d.id), '{}'), coalesce(array_agg(d.state order by d.id), '{}')
      into v_doomed, v_doomed_states
      -- A job that one edge cancels and another fails has failed.
      from (select d.id, max(d.state) as state from doomed d group by d.id) d;
      exit when v_doomed = v_held;
      select coalesce(array_agg(j.id order by j.id), '{}') into v_held
      from (select j.id from longshore.jobs j where j.id = any (v_doomed) order by j.id for update) j;
      /* point: doomed-held */
    end loop;

    if v_doomed <> '{}' then
      -- To find the job that is to blame.
      select jsonb_object_agg(e.id, 1) into v_causes
      from unnest(p_ids || v_doomed, p_states || v_doomed_states) as e(id, state) where e.state <> 'succeeded';
      select jsonb_object_agg(d.id, jsonb_build_object(
          'code', case d.state when 'cancelled' then 'DEPENDENCY_CANCELLED' else 'DEPENDENCY_FAILED' end,
          'message', coalesce((
            select format('job %s, which it was to run after, has not succeeded', c.parent)
            from longshore.edges c where c.child = d.id and c.policy <> 'run' and v_causes ? c.parent::text limit 1
          ), (
            select format('job %s, which it was to run after, has not succeeded', c.parent)
            from longshore.edges c
            where c.child = d.id and c.policy <> 'run' and exists (
              select from longshore.finished_jobs f where f.id = c.parent and f.state <> 'succeeded' offset 0)
            limit 1
          ), 'a job that it was to run after has not succeeded'))),
        v_workflows || coalesce(array_agg(j.workflow)
          filter (where j.has_turn or (j.halts and d.state = 'dependency_failed')), '{}'),
        v_halted || coalesce(array_agg(j.workflow) filter (where j.halts and d.state = 'dependency_failed'), '{}'),
        v_halted_by || coalesce(array_agg(d.id) filter (where j.halts and d.state = 'dependency_failed'), '{}')
      into v_errors, v_workflows, v_halted, v_halted_by
      from unnest(v_doomed, v_doomed_states) as d(id, state)
      cross join lateral (select j.workflow, j.has_turn, j.halts from longshore.jobs j where j.id = d.id offset 0) j;
      perform longshore.move_to_history(e.ids, e.state, null, v_errors)
      from (
        select d.state, array_agg(d.id) as ids from unnest(v_doomed, v_doomed_states) as d(id, state) group by d.state offset 0
      ) e;
      v_ids := v_ids || v_doomed;
      v_states := v_states || v_doomed_states;
      perform longshore.notify_job_waiters(v_doomed);
    end if;
  end if;

  v_children := array(
    select distinct e.child from unnest(v_ids) as p(id)
    cross join lateral (select e.child from longshore.edges e where e.parent = p.id offset 0) e);
  if /* guard: pass-turn */ v_workflows <> '{}' /* end pass-turn */ then
    /* point: workflows-found */
    -- In the order in which enqueues lock them.
    perform from longshore.workflows w where w.id = any (v_workflows) order by w.key
    /* guard: workflow-lock */ for update /* end workflow-lock */;
    if v_halted <> '{}' then
      update longshore.workflows w set halted_by = h.job
      from unnest(v_halted, v_halted_by) as h(id, job) where w.id = h.id and w.halted_by is null;
    end if;
    /* point: workflows-held */
    loop
      -- The job that is found may be gone when it is locked: then the next one gets the turn.
      select coalesce(array_agg(n.id order by n.id) filter (where not n.has_turn), '{}') into v_heads
      from longshore.workflows w
      cross join lateral (
        select j.id, j.has_turn from longshore.jobs j
        where j.workflow = w.id /* guard: lowest-first */ order by j.workflow_seq /* end lowest-first */ limit 1
      ) n
      where w.id = any (v_workflows) /* guard: not-halted */ and w.halted_by is null /* end not-halted */;
      -- Together with the dependents, in one order: a job may be both, and no transaction locks it while it waits for another of these.
      select coalesce(array_agg(j.id order by j.id) filter (where j.id = any (v_heads)), '{}') into v_next
      from (
        select j.id from longshore.jobs j
        where j.id = any (v_heads /* guard: one-order */ || v_children /* end one-order */) order by j.id for no key update
      ) j;
      exit /* guard: look-again */ when v_heads = v_next /* end look-again */;
    end loop;
    /* point: heads-held */
    -- Deleted, not left: an enqueue that reads an older snapshot must not take the last job for one that still has the turn.
    /* guard: no-empty-workflow */ delete from longshore.workflows w
    where w.id = any (v_workflows) and w.halted_by is null
      and (select j.id from longshore.jobs j where j.workflow = w.id limit 1) is null; /* end no-empty-workflow */
  else
    /* guard: children-in-order */ perform from longshore.jobs j
    where j.id = any (v_children) order by j.id for no key update; /* end children-in-order */
  end if;

  for v_lane in
    with steps as (
      select e.child as id, false as is_turn
      from unnest(v_ids, v_states) as p(id, state)
      cross join lateral (select e.* from longshore.edges e where e.parent = p.id /* point: edges-seen */ offset 0) e
      where p.state = 'succeeded' or e.policy = 'run'
      union all
      select n.id, true from unnest(v_next) as n(id)
    ), moves as materialized (
      -- Counted before it is subtracted: an update takes one row of many for each job.
      select h.row, s.steps, s.is_turn
      from (
        select s.id, /* guard: count-parents */ count(*) /* end count-parents */ as steps, bool_or(s.is_turn) as is_turn
        from steps s group by s.id
      ) s
      cross join lateral (
        select j.ctid as row from longshore.jobs j where j.id = s.id and j.state::text = 'waiting' offset 0) h
    ), moved as (
      update longshore.jobs j
      set pending = case when j.pending > m.steps then j.pending - m.steps end,
        has_turn = case when m.is_turn then true else j.has_turn end,
        state = case when j.pending > m.steps then 'waiting' else longshore.state_by_time(longshore.run_at_ms_of(j.score) - v_now_ms) end
      from moves m
      where j.ctid = m.row
      returning j.id, j.lane, j.score, j.state
    )
    select m.lane, m.state, min(m.score) as score, array_agg(m.id order by m.score, m.id) as ids,
      bool_or(longshore.is_due_soon(longshore.run_at_ms_of(m.score) - v_now_ms)) as is_soon
    from moved m where m.state <> 'waiting' group by m.lane, m.state order by m.lane
  loop
    if v_lane.state = 'ready' then
      v_ready := v_ready || v_lane.ids;
      /* guard: wake-worker */ perform longshore.announce_ready(
        v_lane.lane, v_lane.score, v_lane.ids[1], cardinality(v_lane.ids)); /* end wake-worker */
    else
      v_due_soon := v_due_soon or v_lane.is_soon;
    end if;
  end loop;
  if v_due_soon then
    perform pg_notify('longshore.due', '');
  end if;
  for v_at in 1 .. cardinality(v_ready) by 1000 loop
    /* guard: tell-relay */ perform longshore.note_changes(v_ready[v_at : v_at + 999]); /* end tell-relay */
  end loop;
  return v_ready;
end
$$;
