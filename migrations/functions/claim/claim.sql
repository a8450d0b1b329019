-- Hand over up to p_limit of the best ready jobs that the worker may run, in order: best score first over all of
-- its lanes. Never waits for a lock: jobs and slots that others are taking are passed over. Every job handed over carries
-- a new lease token, one per call. A last row without an id answers for the whole claim: `dead` (the worker is being or
-- has been rescued: it gets nothing any more), `busy` (look again in a moment), `more` (look again at once), `full`
-- (jobs wait for a limit; whoever frees a slot rings).
--
-- p_held_…: slots of runs that this transaction has ended, see settle. They are used again or freed here. p_from: as in
-- claim_plain, where a worker serves one lane; a hint.
create function longshore.claim(
  p_worker int, p_limit int,
  p_held_lanes int[] default null, p_held_slots smallint[] default null, p_held_key_slots smallint[] default null,
  p_from bigint default null
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- On statistics taken while the queue was empty the planner expects two ready jobs in a lane, and reads and sorts all
-- 20,000 of them for a claim of 200. The ready index in its own order is the only sensible way.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_limits int[];
  v_is_full boolean;
  v_is_limited boolean;
  v_has_heads boolean;
  v_opened int[] := '{}';
begin
  -- Held until the commit. Rescue takes the same lock alone and then looks for the worker's jobs: it cannot miss what a
  -- claim in flight is about to hand over, and no claim begins after it. So does whoever sets a first limit.
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    perform longshore.reopen(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots))
    where p_held_lanes is not null;
    answer := 'busy';
    return next;
    return;
  end if;
  if p_held_lanes is not null then
    -- The usual case under a limit: as many jobs again of the one lane that this worker has. Their slots pass from the old
    -- ones to the new ones, and no slot group is touched.
    select array_agg(l.id), array_agg(k.id) into v_lanes, v_limits
    from longshore.workers w
    join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
      and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues) and l.concurrency_key = ''
    left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
    where w.id = p_worker and w.dead_at is null;
    if cardinality(v_lanes) = 1 and v_limits[1] is not null and p_held_lanes = array_fill(v_lanes[1], array[cardinality(p_held_lanes)])
      and p_held_key_slots = array_fill(null::smallint, array[cardinality(p_held_lanes)])
      and not exists (select from longshore.lane_heads h where h.parent = v_lanes[1])
      -- All groups of a limit drain, or none.
      and not exists (
        select from longshore.slot_groups g where g.limit_id = v_limits[1] and g.number = p_held_slots[1] and g.is_draining)
    then
      return query
      select m.* from longshore.claim_limited_lane(p_worker, p_limit, v_lanes[1], v_limits[1], p_held_slots, p_from) m;
      return;
    end if;
    v_opened := longshore.open_limits(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots));
  end if;

  -- A statement of its own, after the lock: it sees what the last holder has done.
  select array_agg(l.id) filter (where k.is_full is not true), array_agg(k.id) filter (where k.is_full is not true),
    bool_or(k.is_full), bool_or(k.is_full is not true and k.id is not null), exists (select from longshore.lane_heads)
  into v_lanes, v_limits, v_is_full, v_is_limited, v_has_heads
  from longshore.workers w
  join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues) and l.concurrency_key = ''
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  where w.id = p_worker and w.dead_at is null;

  if v_has_heads then
    v_has_heads := exists (
      select from longshore.lane_heads h where h.parent = any (v_lanes) and h.closed_by is null
    );
  end if;

  if v_lanes is null then
    if v_is_full then
      answer := 'full';
      return next;
    elsif not exists (select from longshore.workers w where w.id = p_worker and w.dead_at is null) then
      answer := 'dead';
      return next;
    end if;
  elsif v_is_limited and not v_has_heads and not v_is_full and cardinality(v_lanes) = 1 then
    return query select m.* from longshore.claim_limited_lane(p_worker, p_limit, v_lanes[1], v_limits[1], '{}', p_from) m;
  elsif v_is_limited or v_has_heads then
    return query
    select m.* from longshore.claim_limited(
      p_worker, p_limit, v_lanes, v_limits, v_has_heads, case when v_is_full then 'full' end) m;
  else
    return query select m.* from longshore.claim_merged(p_worker, p_limit, v_lanes) m;
  end if;
  -- Only now: what this worker took for itself again need not wake anybody.
  perform longshore.ring_limits(v_opened) where v_opened <> '{}';
end
$$;
