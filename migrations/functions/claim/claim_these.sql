-- The part of claim for jobs that Redis named: hand over those that the worker may run, as far as limits allow. p_lanes: the lanes in
-- which Redis believes them. Everything is checked here: a job that Redis named wrongly is refused. `refused` lists those that are ready and
-- were not handed over, with their true place: id, answer, lane, score and token. Answers: `busy` (another transaction holds it),
-- `full` (no slot is free), `moved` (it is in a lane that this worker may not serve, or that Redis did not name). What is neither handed
-- over nor refused is gone.
create function longshore.claim_these(
  p_worker int, p_ids uuid[], p_lanes int[], p_held_lanes int[], p_held_slots smallint[], p_held_key_slots smallint[],
  out wait text, out refused text, out lease_tokens text, out ids text, out lanes text, out attempts text,
  out max_attempts text, out scores text, out created_at text, out payloads text, out alone text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_limits int[];
  v_key_limits int[];
  v_is_limited boolean;
  v_is_changing boolean := false;
  v_own_limits int[] := '{}';
  v_own_slots smallint[] := '{}';
  v_freed int[];
  v_rows tid[];
  v_row_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_short int[];
  v_full int[] := '{}';
  v_limit int;
  v_claimed int := 0;
begin
  select array_agg(l.lane), array_agg(k.id), array_agg(o.id),
    coalesce(bool_or(k.id is not null or o.id is not null or (l.concurrency_key <> '' and t.concurrency_per_key is not null)), false)
  into v_lanes, v_limits, v_key_limits, v_is_limited
  from longshore.worker_lanes l
  left join longshore.tasks t on t.name = l.task
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  left join longshore.limits o on o.task = l.task and o.key = l.concurrency_key and o.key <> '' and o.capacity is not null
  where l.worker_id = p_worker /* guard: alive */ and l.dead_at is null /* end alive */ and l.lane = any (p_lanes);
  if v_lanes is null and not exists (select from longshore.workers w where w.id = p_worker and w.dead_at is null) then
    wait := 'dead';
  end if;
  if v_is_limited and array_position(v_key_limits, null) is not null then
    if longshore.make_key_limits(v_lanes) then
      /* point: limits-made */
      -- One that is not there has just been forgotten, see limit_rooms.
      select array_agg(o.id order by g.no),
        coalesce(bool_or(/* guard: known-limit */ o.id is null and l.concurrency_key <> '' and t.concurrency_per_key is not null /* end known-limit */), false)
      into v_key_limits, v_is_changing
      from unnest(v_lanes) with ordinality as g(lane, no)
      join longshore.lanes l on l.id = g.lane
      left join longshore.tasks t on t.name = l.task
      left join longshore.limits o on o.task = l.task and o.key = l.concurrency_key and o.key <> '' and o.capacity is not null;
    else
      v_is_changing := true;
    end if;
  end if;

  if not v_is_changing then
    -- Locked as they are found: Redis named no more than it believes to have slots. So it is known what they need before slots are taken. The
    -- state as a text, so that the ready index does not offer itself.
    select array_agg(j.ctid), array_agg(j.lane) into v_rows, v_row_lanes
    from (
      select j.ctid, j.lane from longshore.jobs j
      where j.id = any (p_ids) /* guard: still-ready */ and j.state::text = 'ready' /* end still-ready */
        /* guard: named-lane */ and j.lane = any (v_lanes) /* end named-lane */ /* point: reading */
      order by j.score, j.id
      for no key update skip locked
    ) j;
  end if;
  if p_held_lanes is not null then
    select k.* into v_own_limits, v_own_slots, p_held_lanes, p_held_slots, p_held_key_slots
    from longshore.reuse_slots(
      v_row_lanes, v_lanes, v_limits, v_key_limits, p_held_lanes, p_held_slots, p_held_key_slots) k;
    -- Before anything is taken: to free a slot may mean to wait, and a transaction that waits must hold no slot group.
    if p_held_lanes is not null then
      /* guard: free-held */ v_freed := longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots); /* end free-held */
      perform longshore.open_limits(v_freed);
    end if;
  end if;
  if v_is_limited and v_rows is not null then
    select a.slots, a.key_slots, a.short into v_slots, v_key_slots, v_short
    from longshore.assign_slots(v_row_lanes, v_lanes, v_limits, v_key_limits, v_own_limits, v_own_slots) a;
    if v_short <> '{}' then
      select array_agg(g.row), array_agg(g.slot), array_agg(g.key_slot) into v_rows, v_slots, v_key_slots
      from unnest(v_rows, v_slots, v_key_slots) as g(row, slot, key_slot) where g.slot is not null and g.key_slot is not null;
      -- Closed in Postgres as well: a transaction that frees a slot leaves word.
      foreach v_limit in array v_short loop
        if longshore.close_limit(v_limit) = 'full' then
          v_full := v_full || v_limit;
        end if;
      end loop;
    end if;
  end if;
  /* point: locked */
  if v_rows is not null then
    select h.* into v_claimed, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
    from longshore.hand_over(p_worker, v_rows, v_slots, v_key_slots, case when cardinality(v_lanes) = 1 then v_lanes[1] end) h;
  end if;

  if v_claimed < cardinality(p_ids) and wait is null then
    select string_agg(concat_ws(' ', j.id,
      case
        when v_is_changing then 'busy'
        when j.lane <> all (coalesce(v_lanes, '{}')) then 'moved'
        when exists (
          select from unnest(v_lanes, v_limits, v_key_limits) as s(lane, limit_id, key_limit)
          where s.lane = j.lane and (s.limit_id = any (v_full) or s.key_limit = any (v_full))
        ) then 'full'
        else 'busy'
      end, j.lane, j.score, j.lease_token), ',')
    into refused
    from longshore.jobs j where j.id = any (p_ids) and j.state::text = 'ready';
  end if;
  perform longshore.ring_limits(v_freed) where v_freed <> '{}';
end
$$;
