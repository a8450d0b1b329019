-- The insert of jobs, for enqueue_jobs, enqueue and add_to_group. Many in one statement: what jobs have in common travels once, as a *shape*; each job names its
-- shape by number (all are of the first one where p_shape_nos is null). Payloads are JSON texts joined by
-- newlines, which JSON text never holds: neither side pays for quoting.
--
-- A shape: {queue, task, tag, constraintTag, concurrencyKey, maxAttempts, priority, runAt (ms since 1970) or delayMs or
-- neither}.
-- p_checked: the caller cannot be sure that the ids are new (it chose them, or it tries again after an unclear
-- failure): jobs that exist or have finished are left alone. Returns the ids of the jobs that were made, and for each shape where
-- its jobs stand and whether they are ready. p_hinted: the caller tells Redis of them after the commit.
--
-- Jobs that wait for others are inserted by insert_linked: p_workflows (with a key or null for each job; p_halts: its failure
-- stops the workflow), p_group or, for each job its own, p_groups, p_pending (how many dependencies of each are open). Of these
-- none is said to be ready.
--
-- p_traces: the trace context of each job, or null where nothing is traced. In both an empty text means none too: whether an array that
-- is written as a text can hold null depends on array_nulls.
-- p_whole: all of them or none: an id of a job of another task or user is refused, since nothing of what was asked for would run under it.
create function longshore.insert_jobs(
  p_shapes jsonb, p_ids uuid[], p_shape_nos int[], p_payloads text, p_checked boolean, p_hinted boolean default false,
  p_workflows text[] default null, p_halts boolean[] default null, p_group uuid default null, p_pending int[] default null,
  p_traces text[] default null, p_groups uuid[] default null, p_whole boolean default false
) returns table (made uuid[], lanes int[], scores bigint[], is_ready boolean[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  -- Not the start of the transaction: a delay counts from the call.
  v_now_ms bigint := floor(extract(epoch from clock_timestamp()) * 1000);
  v_role oid := longshore.acting_role();
  v_lanes int[];
  v_scores bigint[];
  v_states longshore.job_state[];
  v_max_attempts smallint[];
  v_soon boolean;
  v_has_keys boolean;
  v_constraint_tags text[];
  v_is_in_bounds boolean;
  v_payloads text[] := string_to_array(p_payloads, E'\n');
  v_ids uuid[] := p_ids;
  v_is_linked boolean := p_workflows is not null or p_group is not null or p_groups is not null;
  v_other record;
begin
  p_workflows := array_replace(p_workflows, '', null);
  p_traces := array_replace(p_traces, '', null);
  if cardinality(v_payloads) <> cardinality(p_ids) then
    raise exception 'longshore: % payloads for % ids', cardinality(v_payloads), cardinality(p_ids)
      using errcode = 'invalid_parameter_value';
  end if;
  perform longshore.check_payloads(v_payloads) where octet_length(p_payloads) > 4194304;

  select
    array_agg(longshore.find_lane(s.queue, s.task, s.tag, s."constraintTag", coalesce(s."concurrencyKey", ''))
      order by s.no),
    array_agg(longshore.score_ms(s.priority, s.run_at_ms) order by s.no),
    array_agg(longshore.state_by_time(s.run_at_ms - v_now_ms) order by s.no),
    array_agg(s."maxAttempts" order by s.no),
    coalesce(bool_or(longshore.is_due_soon(s.run_at_ms - v_now_ms)), false),
    coalesce(bool_or(s."concurrencyKey" <> ''), false),
    array_agg(s."constraintTag") filter (where s."constraintTag" <> 'c:'),
    -- Beyond these the two would run into each other in the score.
    bool_and((s.priority between 0 and 2047 and s.run_at_ms between 0 and 4398046511103) is true)
  into v_lanes, v_scores, v_states, v_max_attempts, v_soon, v_has_keys, v_constraint_tags, v_is_in_bounds
  from (
    select r.*, e.no, coalesce(r."runAt", v_now_ms + coalesce(r."delayMs", 0)) as run_at_ms
    from jsonb_array_elements(p_shapes) with ordinality as e(shape, no),
      jsonb_to_record(e.shape) as r(
        queue text, task text, tag text, "constraintTag" text, "maxAttempts" smallint, priority int,
        "runAt" bigint, "delayMs" bigint, "concurrencyKey" text)
  ) s;
  if not v_is_in_bounds then
    raise exception 'longshore: priority must be from 0 to 2047, and the run time between 1970 and 2109'
      using errcode = 'invalid_parameter_value';
  end if;
  if v_constraint_tags is not null then
    perform longshore.check_properties(longshore.constraint_keys(c.tag)) from unnest(v_constraint_tags) as c(tag);
  end if;

  if v_is_linked then
    select l.made into v_ids
    from longshore.insert_linked(
      p_ids, coalesce(p_shape_nos, array_fill(1, array[cardinality(p_ids)])), v_payloads, v_lanes, v_scores, v_states, v_max_attempts,
      p_workflows, p_halts, p_group, p_groups, p_pending, p_checked, p_traces) l;
  elsif p_checked then
    if current_setting('transaction_isolation') <> 'read committed' then
      -- Above READ COMMITTED the history cannot be read afresh below: a transaction that ends one of these jobs right now
      -- must become a serialization failure.
      /* guard: job-locks */ perform 1 from longshore.jobs j where j.id = any (p_ids) order by j.id for key share; /* end job-locks */
    end if;
    with made as (
      insert into longshore.jobs (id, lane, score, state, max_attempts, payload, trace, enqueued_by)
      select t.id, v_lanes[t.no], v_scores[t.no], v_states[t.no], v_max_attempts[t.no], t.payload::jsonb, t.trace, v_role
      from unnest(p_ids, coalesce(p_shape_nos, array_fill(1, array[cardinality(p_ids)])), v_payloads, p_traces)
        as t(id, no, payload, trace)
      /* guard: not-ended */ where not exists (select from longshore.finished_jobs f where f.id = t.id offset 0) /* end not-ended */
      /* guard: known-id */ on conflict (id) do nothing /* end known-id */
      returning id
    )
    select /* guard: only-new */ coalesce(array_agg(m.id), '{}') /* end only-new */ into v_ids from made m;
    v_ids := longshore.drop_ended(v_ids);
  elsif p_shape_nos is null then
    insert into longshore.jobs (id, lane, score, state, max_attempts, payload, trace, enqueued_by)
    select t.id, v_lanes[1], v_scores[1], v_states[1], v_max_attempts[1], t.payload::jsonb, t.trace, v_role
    from unnest(p_ids, v_payloads, p_traces) as t(id, payload, trace);
  else
    insert into longshore.jobs (id, lane, score, state, max_attempts, payload, trace, enqueued_by)
    select t.id, v_lanes[t.no], v_scores[t.no], v_states[t.no], v_max_attempts[t.no], t.payload::jsonb, t.trace, v_role
    from unnest(p_ids, p_shape_nos, v_payloads, p_traces) as t(id, no, payload, trace);
  end if;

  if p_whole and cardinality(v_ids) < cardinality(p_ids) then
    select t.id, l.task as known, p_shapes -> t.no - 1 ->> 'task' as given, longshore.is_own(v_role, j.enqueued_by) as is_own into v_other
    from unnest(p_ids, coalesce(p_shape_nos, array_fill(1, array[cardinality(p_ids)]))) as t(id, no)
    cross join lateral (
      select j.lane, j.enqueued_by from longshore.jobs j where j.id = t.id
      union all
      select f.lane, f.enqueued_by from longshore.finished_jobs f where f.id = t.id
      limit 1
    ) j
    join longshore.lanes l on l.id = j.lane
    where l.task <> p_shapes -> t.no - 1 ->> 'task' or not longshore.is_own(v_role, j.enqueued_by) limit 1;
    if not v_other.is_own then
      raise exception 'longshore: id % is taken by a job of another user, so no job was made', v_other.id
        using errcode = 'LS010', hint = 'Derive ids from the name of your service too.';
    elsif found then
      raise exception 'longshore: id % is that of a job of task %, so no job of task % was made', v_other.id, v_other.known, v_other.given
        using errcode = 'LS010', hint = 'Derive ids from the name of the task too.';
    end if;
  end if;

  if not v_is_linked then
    if v_has_keys then
      perform longshore.note_head(v_lanes[s.no], min(v_scores[s.no]), min(s.id::text)::uuid)
      from unnest(p_ids, coalesce(p_shape_nos, array_fill(1, array[cardinality(p_ids)]))) as s(id, no)
      where v_states[s.no] = 'ready' group by v_lanes[s.no] order by v_lanes[s.no];
    end if;
    if p_shape_nos is null then
      /* guard: tell-relay */ perform longshore.note_changes(v_ids, v_lanes[1], v_scores[1], p_hinted => p_hinted)
      where v_states[1] = 'ready'; /* end tell-relay */
    else
      /* guard: tell-relay */ perform longshore.note_changes(array_agg(s.id), p_hinted => p_hinted)
      from unnest(p_ids, p_shape_nos) as s(id, no)
      where v_states[s.no] = 'ready' and (not p_checked or s.id = any (v_ids)) having count(*) > 0; /* end tell-relay */
    end if;
    if exists (select from longshore.workers w where w.listening) then
      if p_shape_nos is null then
        /* guard: wake-worker */ perform longshore.ring(v_lanes[1], cardinality(p_ids), v_scores[1]) where v_states[1] = 'ready'; /* end wake-worker */
      else
        /* guard: wake-worker */ perform longshore.ring(r.lane, r.jobs, r.score)
        from (
          select v_lanes[n.no] as lane, count(*) as jobs, min(v_scores[n.no]) as score
          from unnest(p_shape_nos) as n(no) where v_states[n.no] = 'ready' group by 1
        ) r; /* end wake-worker */
      end if;
    end if;
  end if;
  if v_soon then
    perform pg_notify('longshore.due', '');
  end if;
  made := v_ids;
  lanes := v_lanes;
  scores := v_scores;
  is_ready := array(
    select s.state = 'ready' and not v_is_linked from unnest(v_states) with ordinality as s(state, no) order by s.no);
  return next;
end
$$;
