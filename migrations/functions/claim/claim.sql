-- Hand over up to p_limit of the best ready jobs that a worker may run, best score first over all of its lanes; or, of p_these, those
-- that it may run (Redis named them, in p_lanes). The steps of every claim:
--
--   lanes of the worker → candidates (one or a few lanes without limits: here; else claim_lanes; named: claim_these)
--     → slots of their limits (assign_slots) → locks (lock_jobs) → the hand-over (hand_over)
--
-- A claim waits for no lock: it passes over jobs and slots that other transactions hold. Where Postgres waits all the same, see lock_jobs.
--
-- All jobs travel in one row: ids and numbers joined by commas, payloads (JSON texts) by newlines, which they never contain. `lanes`: one
-- stands for all where the worker has only one. `lease_tokens`: `token*jobs` for each hand-over. `alone`: jobs that were rescued
-- twice or more, each of which is to run alone in its process. `wait` answers for the whole claim: `dead` (the worker is being rescued and
-- gets nothing any more), `busy` (look again in a moment), `more` (look again at once), `full` (jobs wait for a limit; a slot that is
-- freed rings). `refused`: see claim_these.
--
-- p_from: jobs with a lower score are passed over, see the worker's claim cursor; a hint. p_held_…: slots of runs that this
-- transaction has ended, see settle: they are used again, or freed.
create function longshore.claim(
  p_worker int, p_limit int, p_these uuid[] default null, p_lanes int[] default null, p_from bigint default null,
  p_held_lanes int[] default null, p_held_slots smallint[] default null, p_held_key_slots smallint[] default null,
  out wait text, out refused text, out lease_tokens text, out ids text, out lanes text, out attempts text,
  out max_attempts text, out scores text, out created_at text, out payloads text, out alone text
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
  v_busy int[];
  v_limits int[];
  v_is_full boolean[];
  v_is_limited boolean;
  v_is_closed boolean;
  v_has_keys boolean;
  v_has_waiters boolean := false;
  v_is_passed_on boolean := false;
  v_freed int[];
  v_opened int[] := '{}';
  v_from bigint := coalesce(p_from, 0);
  v_own smallint[];
  v_most int := p_limit;
  v_lane int;
  v_reach int;
  v_found tid[];
  v_rows tid[];
  v_claimed int;
begin
  -- Held until the commit. Rescue takes the same lock alone and then looks for the worker's jobs: it cannot miss what a
  -- claim in flight is about to hand over, and no claim begins after it. Setting a first limit takes it alone too.
  if not /* guard: worker-lock */ pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) /* end worker-lock */ then
    /* guard: free-when-busy */ perform longshore.reopen(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots))
    where p_held_lanes is not null; /* end free-when-busy */
    if p_these is null then
      wait := 'busy';
    else
      select string_agg(concat_ws(' ', j.id, 'busy', j.lane, j.score, j.lease_token), ',') into refused
      from longshore.jobs j where j.id = any (p_these) and j.state::text = 'ready';
    end if;
    return;
  end if;

  if p_these is not null then
    select c.* into wait, refused, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
    from longshore.claim_these(p_worker, p_these, p_lanes, p_held_lanes, p_held_slots, p_held_key_slots) c;
    return;
  end if;

  -- The lanes of the worker. A statement of its own, after the lock: it sees what the last holder has done.
  select array_agg(l.lane), array_agg(k.id), array_agg(coalesce(k.is_full, false)), bool_or(k.id is not null), bool_or(k.is_full),
    exists (select from longshore.lane_heads)
  into v_lanes, v_limits, v_is_full, v_is_limited, v_is_closed, v_has_keys
  from longshore.worker_lanes l
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  where l.worker_id = p_worker /* guard: alive */ and l.dead_at is null /* end alive */ and l.concurrency_key = '';
  if v_is_limited or v_has_keys then
    v_has_waiters := exists (
      select from longshore.limit_waiters o join longshore.workers w on w.id = p_worker and o.task = any (w.tasks)
      where o.worker_id <> p_worker and o.lane <> all (v_lanes));
  end if;

  if p_held_lanes is not null then
    -- The usual case under a limit: as many jobs again of the one lane that this worker has. Their slots pass from the old jobs to the new
    -- ones, and no slot group is touched. Not beside workers that wait for the limit: they may have a better job for it.
    v_is_passed_on := coalesce(cardinality(v_lanes) = 1 and v_limits[1] is not null
      /* guard: waiters-first */ and not v_has_waiters /* end waiters-first */
      and p_held_lanes = array_fill(v_lanes[1], array[cardinality(p_held_lanes)])
      and p_held_key_slots = array_fill(null::smallint, array[cardinality(p_held_lanes)])
      and not exists (select from longshore.lane_heads h where h.parent = v_lanes[1])
      -- All groups of a limit drain, or none.
      /* guard: draining */ and not exists (
        select from longshore.slot_groups g where g.limit_id = v_limits[1]
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = v_limits[1] order by e.era desc limit 1)
          and g.number = p_held_slots[1] and g.is_draining) /* end draining */, false);
    if not v_is_passed_on then
      /* point: freeing */ /* guard: free-held */ v_freed := longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots); /* end free-held */
      v_opened := longshore.open_limits(v_freed);
      v_is_closed := exists (
        select from unnest(v_limits, v_is_full) as k(id, is_full) where k.is_full and k.id <> all (v_opened));
    end if;
  end if;

  if v_lanes is null then
    if not exists (select from longshore.workers w where w.id = p_worker and w.dead_at is null) then
      wait := 'dead';
    end if;
  elsif v_is_passed_on or not v_is_limited and cardinality(v_lanes) <= 16 and not (
    v_has_keys and exists (select from longshore.lane_heads h where h.parent = any (v_lanes) and h.closed_by is null))
  then
    -- The usual claim: no limit is in play, or the slots are at hand.
    if v_is_passed_on then
      v_own := p_held_slots;
      v_most := least(p_limit, cardinality(v_own));
    end if;
    if cardinality(v_lanes) > 1 then
      -- Of several lanes mostly one has jobs, or none. Those are read from their best job on.
      select coalesce(array_agg(l.lane), '{}'), coalesce(min(best.score), v_from) into v_busy, v_from
      from unnest(v_lanes) as l(lane)
      cross join lateral (
        select j.score from longshore.jobs j
        where j.lane = l.lane and j.state = 'ready' and j.score >= v_from order by j.score, j.id limit 1) best;
    else
      v_busy := v_lanes;
    end if;
    if cardinality(v_busy) = 1 then
      -- Locked as they are found.
      v_lane := v_busy[1];
      v_rows := array(
        select j.ctid from longshore.jobs j
        where j.lane = v_lane /* guard: still-ready */ and j.state = 'ready' /* end still-ready */ and j.score >= v_from /* point: reading */
        order by j.score, j.id
        limit v_most
        for no key update skip locked);
    elsif v_busy <> '{}' then
      -- Twice as many as it wants: a worker sends two claims at once, and the other one holds the best of them. Once as many cost a drain 1.17 of a
      -- worker with one task in place of 1.07, since it looked twice.
      v_reach := 2 * v_most;
      loop
        v_found := longshore.merge_few_lanes(v_busy, v_from, v_reach); /* point: found */
        v_rows := array(
          -- As in lock_jobs. What this claim has locked before is among them again.
          select j.ctid from longshore.jobs j
          where /* guard: same-place */ j.ctid = any (v_found) /* end same-place */
            /* guard: found-still-ready */ and j.state::text = 'ready' /* end found-still-ready */
            /* guard: own-lane */ and j.lane = any (v_lanes) /* end own-lane */ /* point: locking */
          order by j.score, j.id
          limit v_most
          for no key update skip locked);
        exit when cardinality(v_rows) = v_most or cardinality(v_found) < v_reach;
        -- Others hold what was found: look further.
        if v_reach > 50 * v_most then
          wait := case when v_rows = '{}' then 'busy' else 'more' end;
          exit;
        end if;
        v_reach := 4 * v_reach;
      end loop;
    end if;
    v_claimed := 0;
    if v_rows <> '{}' then
      select h.* into v_claimed, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
      from longshore.hand_over(p_worker, v_rows, v_own, null, v_lane) h;
    end if;
    if v_is_passed_on then
      -- It takes no others in the same call: a transaction that has taken slots must not wait for groups, to free what is left of its own.
      wait := case when v_is_closed then 'full' when v_claimed = v_most and v_most < p_limit then 'more' end;
      if v_claimed < cardinality(p_held_lanes) then
        /* guard: free-the-rest */ perform longshore.reopen(longshore.free_slots(
          p_held_lanes[v_claimed + 1:], p_held_slots[v_claimed + 1:], p_held_key_slots[v_claimed + 1:])); /* end free-the-rest */
        -- Jobs that were passed over may want them.
        wait := case when v_from > 0 then 'more' else wait end;
      end if;
    end if;
  else
    if v_is_closed then
      select array_agg(k.lane), array_agg(k.id) into v_lanes, v_limits
      from unnest(v_lanes, v_limits, v_is_full) as k(lane, id, is_full) where not k.is_full or k.id = any (v_opened);
    end if;
    if v_lanes is not null then
      select c.* into wait, v_claimed, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
      from longshore.claim_lanes(p_worker, p_limit, v_lanes, v_limits, v_is_limited, v_has_keys, v_has_waiters, p_from) c;
    end if;
    /* point: claimed */
    wait := coalesce(wait, case when v_is_closed then 'full' end);
    -- Also where it has found other jobs: those that the limit keeps from it may be better, and its next claim is for them.
    if v_is_closed or wait = 'full' then
      perform longshore.wait_for_limits(p_worker, greatest(p_limit - coalesce(v_claimed, 0), 1));
    end if;
  end if;
  -- Only now: what this worker took for itself again need not wake others.
  perform longshore.ring_limits(v_freed) where v_freed <> '{}';
end
$$;
