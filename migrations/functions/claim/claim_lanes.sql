-- The part of claim for a worker with limits, or with very many lanes: p_lanes are open, p_limits are those of their tasks (null: none).
-- Reads candidates in order without locks, gives those under limits their slots, locks them and hands them over, a batch at a time.
-- What other transactions hold is passed over and the next batch is looked at, so the order stays exact without locking a page of every
-- lane. A limit that proves full is closed, so that the next claim does not look at its lanes.
--
-- p_has_keys: there are lanes with keys, below those without, that have ready jobs. p_has_waiters: see limit_waiters.
create function longshore.claim_lanes(
  p_worker int, p_limit int, p_lanes int[], p_limits int[], p_is_limited boolean, p_has_keys boolean, p_has_waiters boolean,
  p_from bigint,
  out wait text, out claimed int, out lease_tokens text, out ids text, out lanes text, out attempts text,
  out max_attempts text, out scores text, out created_at text, out payloads text, out alone text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Turns in one call, rows in one merge, lanes with keys in one turn.
  c_most_turns constant int := 8;
  c_most_rows constant int := 10000;
  c_most_keys constant int := 8192;
  c_last_id constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  v_after_score bigint := coalesce(p_from, 0) - 1;
  v_after_id uuid := c_last_id;
  -- The last place to look at in this turn.
  v_last_score bigint := 9223372036854775807;
  v_last_id uuid := c_last_id;
  -- Lanes with keys: where to read on, and those that go on behind although what claims were told of them does not say so. Few at first: each
  -- may need a limit of its own to be made, and mostly they have what is wanted.
  v_keys_after_score bigint := -1;
  v_keys_after_id uuid := c_last_id;
  v_keys_left int[] := '{}';
  v_most_keys int := least(64, p_limit);
  v_key_lanes int[] := '{}';
  v_key_scores bigint[];
  v_has_more_keys boolean := false;
  v_has_keys boolean := p_has_keys and exists (
    select from longshore.lane_heads h where h.parent = any (p_lanes) and h.closed_by is null);
  v_is_limited boolean := p_is_limited or v_has_keys;
  -- Where jobs may come from, and how many of each.
  v_lanes int[] := p_lanes;
  v_limits int[] := p_limits;
  v_key_limits int[];
  v_rooms int[];
  v_cuts boolean[];
  v_without_room int[];
  v_is_left boolean := false;
  v_is_lost boolean := false;
  v_found record;
  v_depth int := 0;
  v_is_last boolean;
  -- What is looked at together. A worker that has to look again is in a crowd, and most of what it finds will be held.
  v_at int;
  v_batch int := p_limit;
  v_rows tid[];
  v_row_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_jobs record;
  v_new record;
  v_is_lacking boolean;
  v_turn_claimed int;
  v_short int[];
  v_spent int[] := '{}';
  v_closed int[];
  v_limit int;
  v_said text;
begin
  claimed := 0; /* point: begin */
  for v_turn in 1..c_most_turns loop
    if v_has_keys then
      -- Behind what earlier turns have looked at: what this claim has brought up to date stands further on.
      select k.* into v_key_lanes, v_key_scores, v_has_more_keys, v_last_score, v_last_id
      from longshore.read_key_lanes(p_lanes, v_keys_after_score, v_keys_after_id, v_most_keys, v_keys_left) k;
      v_most_keys := least(4 * v_most_keys, c_most_keys);
      if not longshore.make_key_limits(v_key_lanes) then
        wait := 'busy';
        exit;
      end if;
    end if;
    /* point: limits-made */
    if v_is_limited then
      select r.* into v_lanes, v_limits, v_key_limits, v_rooms, v_cuts, v_without_room, v_is_left, v_is_lost
      from longshore.limit_rooms(p_worker, p_lanes, p_limits, v_key_lanes, v_spent, p_has_waiters) r;
      if v_is_lost then
        wait := 'busy';
        exit;
      end if;
    end if;

    v_depth := greatest(
      2 * v_depth, least(p_limit - claimed, 4 + 3 * (p_limit - claimed) / (2 * cardinality(v_lanes))));
    select m.* into v_found from longshore.merge_lanes(
      v_lanes, v_rooms, v_cuts, c_most_rows, v_depth, v_after_score, v_after_id, v_last_score, v_last_id) m;
    v_at := 0;
    v_turn_claimed := 0;
    v_is_lacking := false;
    v_short := '{}';
    while claimed < p_limit and v_at < cardinality(v_found.rows) and v_short = '{}' loop
      v_rows := v_found.rows[v_at + 1 : v_at + v_batch];
      v_row_lanes := v_found.lanes[v_at + 1 : v_at + v_batch];
      v_at := v_at + cardinality(v_rows);
      /* point: found */
      if v_is_limited then
        -- Slots first, then the jobs that have them: a job that is locked for nothing costs more than a slot that is given back.
        select a.slots, a.key_slots, a.short into v_slots, v_key_slots, v_short
        from longshore.assign_slots(v_row_lanes, v_lanes, v_limits, v_key_limits) a;
      else
        v_slots := array_fill((-1)::smallint, array[cardinality(v_rows)]);
        v_key_slots := v_slots;
      end if;
      select l.* into v_jobs
      from longshore.lock_jobs(v_rows, v_row_lanes, v_slots, v_key_slots, p_limit - claimed) l;
      if v_jobs.spare_lanes is not null then
        /* guard: spare-slots */ perform longshore.free_slots(v_jobs.spare_lanes, v_jobs.spare_slots, v_jobs.spare_key_slots); /* end spare-slots */
        v_is_lacking := true;
      end if;
      if v_jobs.rows <> '{}' then
        select h.* into v_new from longshore.hand_over(p_worker, v_jobs.rows, v_jobs.slots, v_jobs.key_slots, null) h;
        claimed := claimed + v_new.jobs;
        v_turn_claimed := v_turn_claimed + v_new.jobs;
        lease_tokens := concat_ws(',', lease_tokens, v_new.lease_tokens);
        ids := concat_ws(',', ids, v_new.ids);
        lanes := concat_ws(',', lanes, v_new.lanes);
        attempts := concat_ws(',', attempts, v_new.attempts);
        max_attempts := concat_ws(',', max_attempts, v_new.max_attempts);
        scores := concat_ws(',', scores, v_new.scores);
        created_at := concat_ws(',', created_at, v_new.created_at);
        payloads := concat_ws(E'\n', payloads, v_new.payloads);
        alone := nullif(concat_ws(',', alone, v_new.alone), '');
      end if;
      v_batch := greatest(100, p_limit - claimed);
    end loop;
    v_is_last := v_found.is_last and v_at = cardinality(v_found.rows);
    if v_at > 0 then
      v_after_score := v_found.scores[v_at];
      v_after_id := v_found.ids[v_at];
    else
      v_after_score := v_last_score;
      v_after_id := v_last_id;
    end if;
    -- A limit that ran out in this turn has ended it early: lanes with keys behind that place have been read and not looked at.
    v_keys_after_score := case when v_is_last then v_last_score else v_after_score end;
    v_keys_after_id := case when v_is_last then v_last_id else v_after_id end;

    if v_is_limited then
      -- Limits without room for jobs that are ready: full, unless another transaction is about to free a slot.
      v_closed := '{}'; /* point: closing */
      for v_limit in
        select distinct x.id
        from unnest(v_lanes, v_limits, v_key_limits) as s(lane, limit_id, key_limit)
        cross join lateral (values (s.limit_id), (s.key_limit)) as x(id)
        where x.id = any (v_short) or (x.id = any (v_without_room) and exists (
          select from longshore.jobs j where j.lane = s.lane and j.state = 'ready' offset 0
        ))
        order by 1
      loop
        v_said := longshore.close_limit(v_limit);
        if v_said = 'full' then
          v_closed := v_closed || v_limit;
        end if;
        wait := case
          when v_said = 'full' then coalesce(wait, 'full')
          when v_said = 'room' and v_turn_claimed > 0 then 'more'
          when wait is distinct from 'more' then 'busy'
          else wait
        end;
      end loop;
      if v_has_keys then
        perform longshore.tidy_heads(
          array(
            select h.lane from unnest(v_key_lanes, v_key_scores) as h(lane, score)
            where h.score <= v_after_score or v_is_last
          ), v_closed);
      end if;
      v_spent := v_spent || v_short;
    end if;
    -- Slots that were left to others are free again if those do not come.
    if v_is_left then
      wait := 'busy';
    end if;
    exit when claimed >= p_limit; /* point: further */
    -- All that could be found was found. Where others held some of it, there may be room for what comes behind.
    -- A limit whose last slots it has taken is closed in the next turn, if jobs still wait for it.
    exit when v_is_last and not v_has_more_keys and not v_is_lacking and not (v_turn_claimed > 0 and exists (
      select from unnest(v_lanes, v_rooms) as s(lane, room)
      where s.room > 0 and s.room <= (select count(*) from unnest(v_found.lanes) as f(lane) where f.lane = s.lane)));
    -- What is left of a limit of which half is taken is for the next call.
    if v_turn_claimed > 0 and exists (
      select from unnest(v_lanes, v_cuts) as s(lane, is_cut) where s.is_cut and s.lane = any (v_found.lanes[:v_at])
    ) then
      wait := 'more';
      exit;
    end if;
    if v_turn = c_most_turns then
      wait := case when claimed > 0 then 'more' else 'busy' end;
    end if;
    -- A transaction that has not committed holds what is known of a lane as it is, or the lane's best job.
    if v_has_keys then
      v_keys_left := array(
        select distinct h.lane from longshore.lane_heads h
        where h.lane = any (v_key_lanes) and h.closed_by is null and (h.score, h.job_id) <= (v_keys_after_score, v_keys_after_id)
          and exists (
            select from longshore.jobs j
            where j.lane = h.lane and j.state = 'ready' and (j.score, j.id) > (v_after_score, v_after_id) offset 0
          )
      );
    end if;
  end loop;
end
$$;
