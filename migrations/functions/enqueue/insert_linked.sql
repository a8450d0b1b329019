-- The part of insert_jobs for jobs of a group or a workflow: inserts them, waiting where they have to, and tells of those
-- that are ready. p_lanes, p_scores, p_states, p_max_attempts are those of the shapes.
--
-- A workflow's row is locked until the commit, and numbers are given under the lock: jobs of a workflow run in the order in which
-- their transactions got the lock, and within one call in the order of the list. Gaps do no harm.
create function longshore.insert_linked(
  p_ids uuid[], p_shape_nos int[], p_payloads text[], p_lanes int[], p_scores bigint[], p_states longshore.job_state[],
  p_max_attempts smallint[], p_workflows text[], p_halts boolean[], p_group uuid, p_groups uuid[], p_pending int[],
  p_checked boolean, p_traces text[],
  out made uuid[], out ready uuid[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
-- As in settle_and_claim.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_role oid := longshore.acting_role();
  v_keys text[];
  v_workflows bigint[];
  v_firsts bigint[];
  v_free boolean[];
  v_lane record;
begin
  if p_checked then
    -- Before the workflows, as settle does: a transaction that ends one of these jobs right now is waited for. Above READ COMMITTED that
    -- becomes a serialization failure, since the history cannot be read afresh below.
    /* guard: job-locks */ perform from longshore.jobs j where j.id = any (p_ids) order by j.id for key share; /* end job-locks */
  end if;
  if p_workflows is not null then
    with given as (
      select w.key, count(*) as jobs from unnest(p_workflows) as w(key) where w.key is not null group by w.key order by w.key
    ), locked as (
      insert into longshore.workflows as w (key, next_seq) select g.key, g.jobs from given g order by g.key
      on conflict (key) do update set next_seq = w.next_seq + excluded.next_seq
      returning w.id, w.key, w.next_seq, w.halted_by
    )
    select array_agg(l.key order by l.key), array_agg(l.id order by l.key),
      array_agg(l.next_seq - g.jobs order by l.key),
      array_agg(/* guard: not-halted */ l.halted_by is null /* end not-halted */ order by l.key)
    into v_keys, v_workflows, v_firsts, v_free
    from locked l join given g on g.key = l.key;
    if v_keys is null then
      p_workflows := null;
    else
      -- A statement of its own, after the locks: a job that had the turn and has ended is gone.
      select array_agg(w.is_free /* guard: one-turn */ and h.id is null /* end one-turn */ order by w.no)
      into v_free
      from unnest(v_workflows, v_free) with ordinality as w(id, is_free, no)
      left join lateral (select j.id from longshore.jobs j where j.workflow = w.id limit 1) h on true;
    end if;
  end if;

  with given as materialized (
    select t.id, t.shape, t.payload, t.trace, t.group_id, t.halts, t.pending, t.no, w.id as workflow,
      w.first + row_number() over (partition by w.id order by t.no) - 1 as seq,
      -- The jobs that are known already may include the first one: then the turn is given afterwards.
      case when w.id is not null then
        w.is_free and not p_checked and row_number() over (partition by w.id order by t.no) = 1
      end as has_turn
    from unnest(p_ids, p_shape_nos, p_payloads, p_workflows, p_halts, p_pending, p_traces, p_groups)
      with ordinality as t(id, shape, payload, key, halts, pending, trace, group_id, no)
    left join unnest(v_keys, v_workflows, v_firsts, v_free) as w(key, id, first, is_free) on w.key = t.key
    /* guard: not-ended */ where not p_checked
      or not exists (select from longshore.finished_jobs f where f.id = t.id offset 0) /* end not-ended */
  ), inserted as (
    insert into longshore.jobs (id, lane, score, state, max_attempts, payload, group_id, pending, workflow, workflow_seq,
      has_turn, halts, trace, enqueued_by)
    select g.id, p_lanes[g.shape], p_scores[g.shape],
      case when coalesce(g.pending, 0) > 0 or not g.has_turn then 'waiting' else p_states[g.shape] end,
      p_max_attempts[g.shape], g.payload::jsonb, coalesce(g.group_id, p_group),
      nullif(coalesce(g.pending, 0) + case when not g.has_turn then 1 else 0 end, 0),
      g.workflow, case when g.workflow is not null then g.seq end, g.has_turn,
      case when g.halts then true end, g.trace, v_role
    from given g order by g.no
    on conflict (id) do nothing
    returning id, state
  )
  select coalesce(array_agg(i.id), '{}'), coalesce(array_agg(i.id) filter (where i.state = 'ready'), '{}')
  into made, ready from inserted i;
  if not p_checked and cardinality(made) < cardinality(p_ids) then
    -- Ids are new, so an earlier try was still under way; the next try finds what became of it.
    raise exception 'longshore: one of these jobs is known already' using errcode = 'serialization_failure';
  end if;
  if p_checked then
    made := longshore.drop_ended(made);
    ready := array(select r.id from unnest(ready) as r(id) where r.id = any (made));
  end if;

  for v_lane in
    select j.lane, min(j.score) as score, (array_agg(j.id order by j.score, j.id))[1] as first, count(*) as jobs
    from unnest(ready) as r(id)
    cross join lateral (select j.* from longshore.jobs j where j.id = r.id offset 0) j group by j.lane order by j.lane
  loop
    perform longshore.announce_ready(v_lane.lane, v_lane.score, v_lane.first, v_lane.jobs);
  end loop;
  /* guard: tell-relay */ perform longshore.note_changes(ready) where ready <> '{}'; /* end tell-relay */
  if p_checked and v_workflows is not null then
    ready := ready || longshore.pass_on('{}', '{}', v_workflows);
  end if;
end
$$;
