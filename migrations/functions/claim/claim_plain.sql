-- The usual claim, in few statements and straight as the texts that settle_and_claim answers with (a row per job would pass
-- through two more tables on its way): from the one lane that a worker serves, or of p_these, which Redis named in p_lanes;
-- no limit in play. Everything is checked as in claim and claim_these. Otherwise `is_done` is not true, nothing was done, and
-- those two are to be asked. p_from: jobs of the lane with a lower score are passed over, see the worker's claim cursor.
create function longshore.claim_plain(
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
  v_is_limited boolean;
  v_has_heads boolean;
  v_claimed int;
  v_from bigint := coalesce(p_from, 0);
begin
  -- As in claim.
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    return;
  end if;
  if p_these is null then
    select array_agg(l.id), coalesce(bool_or(k.id is not null), false), exists (select from longshore.lane_heads)
    into v_lanes, v_is_limited, v_has_heads
    from longshore.workers w
    join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
      and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues) and l.concurrency_key = ''
    left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
    where w.id = p_worker and w.dead_at is null;
    if v_has_heads then
      v_has_heads := exists (select from longshore.lane_heads h where h.parent = any (v_lanes) and h.closed_by is null);
    end if;
    if v_is_limited or v_has_heads or cardinality(v_lanes) is distinct from 1 then
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

  select array_agg(l.id),
    coalesce(bool_or(k.id is not null or (l.concurrency_key <> '' and t.concurrency_per_key is not null)), false)
  into v_lanes, v_is_limited
  from longshore.workers w
  join longshore.lanes l on l.id = any (p_lanes) and l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues)
  left join longshore.tasks t on t.name = l.task
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  where w.id = p_worker and w.dead_at is null;
  if v_is_limited or v_lanes is null then
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
