-- The hot functions as they would be if there were no limits: what `concurrency-baseline` compares with. Claim reads
-- no limits and no heads of keys; settle looks for no slots. Everything else is as in migrations/functions/.
create or replace function longshore.claim(
  p_worker int, p_limit int,
  p_held_lanes int[] default null, p_held_slots smallint[] default null, p_held_key_slots smallint[] default null
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
begin
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    answer := 'busy';
    return next;
    return;
  end if;
  select array_agg(l.id) into v_lanes
  from longshore.workers w
  join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues) and l.concurrency_key = ''
  where w.id = p_worker and w.dead_at is null;

  if v_lanes is null then
    if not exists (select from longshore.workers w where w.id = p_worker and w.dead_at is null) then
      answer := 'dead';
      return next;
    end if;
  elsif cardinality(v_lanes) = 1 then
    return query
    with head as materialized (
      select j.ctid from longshore.jobs j
      where j.lane = v_lanes[1] and j.state = 'ready'
      order by j.score, j.id
      limit p_limit
      for no key update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
        lease_token = (select nextval('longshore.lease_tokens'))
      where j.ctid = any (array(select h.ctid from head h))
      returning j.*
    )
    select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at,
      c.payload
    from claimed c order by c.score, c.id;
  else
    return query select m.* from longshore.claim_merged(p_worker, p_limit, v_lanes) m;
  end if;
end
$$;

create or replace function longshore.settle(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb
) returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '50ms'
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_tokens bigint[];
  v_linked uuid[];
  v_workflows bigint[];
  v_groups uuid[];
  v_ready uuid[];
begin
  if cardinality(p_ids) > 0 then
    begin
      with gone as (
        delete from longshore.jobs j
        where j.id = any (p_ids) and j.worker_id = p_worker and not j.is_cancelled
        returning j.*
      ), kept as (
        insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane,
          worker_id, day, state, attempts, max_attempts, rescues, payload, result, group_id, workflow, workflow_seq)
        select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane,
          g.worker_id, (now() at time zone 'utc')::date, 'succeeded', g.attempts, g.max_attempts, g.rescues, g.payload,
          case when p_results is not null then p_results -> g.id::text end, g.group_id, g.workflow, g.workflow_seq
        from gone g
      )
      select array_agg(g.id order by g.id), array_agg(g.lease_token order by g.id),
        array_agg(g.id) filter (where g.group_id is not null or g.workflow is not null),
        array_agg(g.workflow) filter (where g.workflow is not null),
        array_agg(distinct g.group_id) filter (where g.group_id is not null)
      into v_ids, v_tokens, v_linked, v_workflows, v_groups
      from gone g;
      if v_ids is distinct from p_ids or v_tokens is distinct from p_tokens then
        raise lock_not_available;
      end if;
      if v_linked is not null then
        v_ready := longshore.pass_on(
          v_linked, array_fill('succeeded'::longshore.job_state, array[cardinality(v_linked)]), v_workflows);
      end if;
    exception when lock_not_available or unique_violation then
      v_ids := null;
    end;
    if v_ids is null then
      return query
      select c.* from longshore.settle_carefully(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.tell_waiters(v_ids);
      if v_linked is not null then
        return query
        select r.id, 'ready'::text, null::int, null::smallint, null::smallint from unnest(v_ready) as r(id)
        union all
        select g.id, 'group', null, null, null from longshore.nearly_ended(v_groups) as g(id);
      end if;
    end if;
  end if;

  if p_others is not null then
    return query select o.* from longshore.settle_others(p_worker, p_others) o;
  end if;
end
$$;
