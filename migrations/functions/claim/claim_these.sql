-- Hand over these ready jobs, which Redis named, as far as the worker may run them and limits allow. Everything is checked
-- here: a job that Redis named wrongly is refused. As claim, it never waits. p_lanes: the lanes that Redis believes them in.
-- Answers for each that is ready and not handed over, with its true place: `busy` (somebody holds it), `full` (no slot is
-- free), `moved` (it is in a lane that this worker may not serve, or that Redis did not name). What is not answered for is gone.
-- A row without an id answers for the whole claim: `dead`.
--
-- p_held_…: slots of runs that this transaction has ended, see settle.
create function longshore.claim_these(
  p_worker int, p_ids uuid[], p_lanes int[],
  p_held_lanes int[] default null, p_held_slots smallint[] default null, p_held_key_slots smallint[] default null
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- By the primary key, whatever the statistics say.
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_limits int[];
  v_key_limits int[];
  v_is_limited boolean;
  v_token bigint;
  v_opened int[] := '{}';
  v_kept record;
  v_own_limits int[] := '{}';
  v_own_slots smallint[] := '{}';
  v_page uuid[];
  v_page_lanes int[];
  v_rows tid[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_short int[] := '{}';
  v_full int[] := '{}';
  v_limit int;
  v_claimed int := 0;
begin
  -- As in claim.
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    perform longshore.reopen(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots))
    where p_held_lanes is not null;
    return query
    select j.id, 'busy'::text, j.lane, j.lease_token, null::smallint, null::smallint, null::smallint, j.score,
      null::timestamptz, null::jsonb
    from longshore.jobs j where j.id = any (p_ids);
    return;
  end if;
  select array_agg(l.id), array_agg(k.id), array_agg(o.id),
    coalesce(bool_or(k.id is not null or (l.concurrency_key <> '' and t.concurrency_per_key is not null)), false)
  into v_lanes, v_limits, v_key_limits, v_is_limited
  from longshore.workers w
  join longshore.lanes l on l.id = any (p_lanes) and l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues)
  left join longshore.tasks t on t.name = l.task
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  left join longshore.limits o on o.task = l.task and o.key = l.concurrency_key and o.key <> '' and o.capacity is not null
  where w.id = p_worker and w.dead_at is null;

  if v_lanes is null and not exists (select from longshore.workers w where w.id = p_worker and w.dead_at is null) then
    perform longshore.reopen(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots))
    where p_held_lanes is not null;
    answer := 'dead';
    return next;
    return;
  end if;

  if v_is_limited and array_position(v_key_limits, null) is not null then
    if longshore.make_key_limits(v_lanes) then
      select array_agg(o.id order by g.no) into v_key_limits
      from unnest(v_lanes) with ordinality as g(lane, no)
      join longshore.lanes l on l.id = g.lane
      left join longshore.limits o on o.task = l.task and o.key = l.concurrency_key and o.key <> '' and o.capacity is not null;
    else
      v_lanes := '{}'; -- somebody is just changing limits
    end if;
  end if;
  select coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.lane), '{}'), coalesce(array_agg(j.ctid), '{}')
  into v_page, v_page_lanes, v_rows
  from (
    -- The state as a text, so that the ready index does not offer itself.
    select j.id, j.lane, j.ctid from longshore.jobs j
    where j.id = any (p_ids) and j.state::text = 'ready' and j.lane = any (v_lanes)
    order by j.score, j.id
  ) j;
  if p_held_lanes is not null then
    -- Before anything is taken: to free a slot may mean to wait, and whoever waits must not hold slots.
    select k.* into v_kept from longshore.reuse_slots(
      v_page_lanes, v_lanes, v_limits, v_key_limits, p_held_lanes, p_held_slots, p_held_key_slots) k;
    if v_kept.rest_lanes is not null then
      v_opened := longshore.open_limits(longshore.free_slots(v_kept.rest_lanes, v_kept.rest_slots, v_kept.rest_key_slots));
    end if;
    v_own_limits := v_kept.own_limits;
    v_own_slots := v_kept.own_slots;
  end if;
  if v_page <> '{}' then
    select a.slots, a.key_slots, a.short into v_slots, v_key_slots, v_short
    from longshore.assign_slots(v_page_lanes, v_lanes, v_limits, v_key_limits, v_own_limits, v_own_slots) a;
    v_token := nextval('longshore.lease_tokens');
    return query
    with given as materialized (
      select p.row, p.slot, p.key_slot from unnest(v_rows, v_slots, v_key_slots) as p(row, slot, key_slot)
      where p.slot is not null and p.key_slot is not null
    ), free as materialized (
      -- As in claim_merged.
      select j.ctid from longshore.jobs j
      where j.ctid = any (array(select g.row from given g)) and j.state::text = 'ready' and j.lane = any (v_lanes)
        and j.lease_token < v_token
      for no key update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
        lease_token = v_token, slot = nullif(g.slot, -1), key_slot = nullif(g.key_slot, -1)
      from free f join given g on g.row = f.ctid
      where j.ctid = f.ctid
      returning j.*
    )
    select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score,
      c.created_at, c.payload
    from claimed c order by c.score, c.id;
    get diagnostics v_claimed = row_count;
    if v_claimed < (
      select count(*) from unnest(v_slots, v_key_slots) as p(slot, key_slot)
      where p.slot is not null and p.key_slot is not null)
    then
      -- Nobody held those that were passed on: their limit may have been closed meanwhile.
      v_opened := v_opened || longshore.open_limits(longshore.return_slots(
        v_page, v_page_lanes, v_slots, v_key_slots, v_token, v_lanes, v_limits, v_key_limits));
    end if;
  end if;
  -- Closed in Postgres as well: whoever frees a slot leaves word.
  foreach v_limit in array v_short loop
    if longshore.close_limit(v_limit) = 'full' then
      v_full := v_full || v_limit;
    end if;
  end loop;

  if v_claimed < cardinality(p_ids) then
    return query
    select j.id,
      case
        when v_lanes = '{}' then 'busy'
        when j.lane <> all (coalesce(v_lanes, '{}')) then 'moved'
        when exists (
          select from unnest(v_lanes, v_limits, v_key_limits) as s(lane, limit_id, key_limit)
          where s.lane = j.lane and (s.limit_id = any (v_full) or s.key_limit = any (v_full))
        ) then 'full'
        else 'busy'
      end,
      j.lane, j.lease_token, null::smallint, null::smallint, null::smallint, j.score, null::timestamptz, null::jsonb
    from longshore.jobs j where j.id = any (p_ids) and j.state::text = 'ready';
  end if;
  perform longshore.ring_limits(v_opened) where v_opened <> '{}';
end
$$;
