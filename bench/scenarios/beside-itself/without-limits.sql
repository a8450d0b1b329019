-- The hot functions as they would be if there were no limits: what `concurrency-baseline` compares with. The usual
-- claim reads no limits and no heads of keys; settle looks for no slots. Everything else is as in migrations/functions/.
create or replace function longshore.claim_plain(
  p_worker int, p_limit int, p_these uuid[], p_lanes int[], p_from bigint,
  out is_done boolean, out lease_token bigint, out ids text, out lanes text, out attempts text, out max_attempts text,
  out scores text, out created_at text, out payloads text, out alone text, out refused text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in claim.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_claimed int;
  v_from bigint := coalesce(p_from, 0);
begin
  -- As in claim.
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    return;
  end if;
  if p_these is null then
    select array_agg(l.id) into v_lanes
    from longshore.workers w
    join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
      and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues) and l.concurrency_key = ''
    where w.id = p_worker and w.dead_at is null;
    if cardinality(v_lanes) is distinct from 1 then
      return;
    end if;
    with head as materialized (
      select j.ctid from longshore.jobs j
      where j.lane = v_lanes[1] and j.state = 'ready' and j.score >= v_from
      order by j.score, j.id
      limit p_limit
      for no key update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
        lease_token = (select nextval('longshore.lease_tokens'))
      where j.ctid = any (array(select h.ctid from head h))
      returning j.id, j.lane, j.lease_token, j.attempts, j.max_attempts, j.rescues, j.score, j.created_at, j.payload
    )
    select max(c.lease_token), string_agg(c.id::text, ','), max(c.lane)::text, string_agg(c.attempts::text, ','),
      string_agg(c.max_attempts::text, ','), string_agg(c.score::text, ','), string_agg(c.created_at::text, ','),
      string_agg(case when octet_length(c.payload) > 65536 then '' else c.payload end, E'\n'),
      string_agg(c.id::text, ',') filter (where c.rescues >= 2)
    into lease_token, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
    from (
      select c.id, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at,
        c.payload::text as payload
      from claimed c order by c.score, c.id
    ) c;
    is_done := true;
    return;
  end if;

  select array_agg(l.id) into v_lanes
  from longshore.workers w
  join longshore.lanes l on l.id = any (p_lanes) and l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues)
  where w.id = p_worker and w.dead_at is null;
  if v_lanes is null then
    return;
  end if;
  with free as materialized (
    -- The state as a text, so that the ready index does not offer itself.
    select j.ctid from longshore.jobs j
    where j.id = any (p_these) and j.state::text = 'ready' and j.lane = any (v_lanes)
    for no key update skip locked
  ), claimed as (
    update longshore.jobs j
    set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
      lease_token = (select nextval('longshore.lease_tokens'))
    where j.ctid = any (array(select f.ctid from free f))
    returning j.id, j.lane, j.lease_token, j.attempts, j.max_attempts, j.rescues, j.score, j.created_at, j.payload
  )
  select max(c.lease_token), string_agg(c.id::text, ','),
    case when min(c.lane) = max(c.lane) then max(c.lane)::text else string_agg(c.lane::text, ',') end,
    string_agg(c.attempts::text, ','), string_agg(c.max_attempts::text, ','), string_agg(c.score::text, ','),
    string_agg(c.created_at::text, ','),
    string_agg(case when octet_length(c.payload) > 65536 then '' else c.payload end, E'\n'),
    string_agg(c.id::text, ',') filter (where c.rescues >= 2), count(*)
  into lease_token, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone, v_claimed
  from (
    select c.id, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at,
      c.payload::text as payload
    from claimed c order by c.score, c.id
  ) c;
  if v_claimed < cardinality(p_these) then
    select string_agg(
      concat_ws(' ', j.id, case when j.lane <> all (v_lanes) then 'moved' else 'busy' end, j.lane, j.score, j.lease_token), ',')
    into refused
    from longshore.jobs j where j.id = any (p_these) and j.state::text = 'ready';
  end if;
  is_done := true;
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
      select m.ids, m.tokens, m.linked, m.workflows, m.groups into v_ids, v_tokens, v_linked, v_workflows, v_groups
      from longshore.move_to_history(p_ids, 'succeeded', p_results, null, p_worker) m;
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
      select c.* from longshore.settle_contended(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.notify_job_waiters(v_ids);
      if v_linked is not null then
        return query
        select r.id, 'ready'::text, null::int, null::smallint, null::smallint from unnest(v_ready) as r(id)
        union all
        select g.id, 'group', null, null, null from longshore.nearly_ended(v_groups) as g(id);
      end if;
    end if;
  end if;

  if p_others is not null then
    return query select o.* from longshore.settle_unsuccessful(p_worker, p_others) o;
  end if;
end
$$;
