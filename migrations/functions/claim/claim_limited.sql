-- Claim from lanes of which some are under limits, or have lanes with keys below them. As claim_merged, but each lane gives
-- no more than there is room for, and a job is handed over only with a slot of each of its limits. A limit that
-- proves full is closed, so that the next claim does not look at its lanes.
--
-- p_limits: for each lane the limit of its task, or null. p_has_heads: there are lanes with keys that have ready jobs.
-- p_answer: what to answer if nothing else is to be said.
create function longshore.claim_limited(
  p_worker int, p_limit int, p_lanes int[], p_limits int[], p_has_heads boolean, p_answer text
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- Two dozen small statements with one sensible plan each: planning them anew took longer than running them.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  -- Turns in one call, rows in one merge, heads in one turn.
  c_most_turns constant int := 8;
  c_most_rows constant int := 10000;
  c_most_heads constant int := 8192;
  c_last_score constant bigint := 9223372036854775807;
  c_last_id constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  v_wanted int := p_limit;
  v_token bigint;
  v_answer text := p_answer;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
  -- Where to read heads from.
  v_from_score bigint := -1;
  v_from_id uuid := c_last_id;
  -- The last place to look at in this turn.
  v_last_score bigint := case when p_has_heads then -1 else c_last_score end;
  v_last_id uuid := c_last_id;
  -- Few at first: each may need a limit of its own to be made, and mostly they have what is wanted.
  v_most_heads int := least(64, p_limit);
  -- Lanes with keys that claims were told of, and whether there may be more of them.
  v_heads int[] := '{}';
  v_head_scores bigint[] := '{}';
  v_has_more_heads boolean := false;
  -- Lanes with keys that earlier turns have looked at and that go on behind, though what claims were told of them does not say so.
  v_left_heads int[] := '{}';
  -- Where jobs may come from: lanes, their limits, and how many each may give (null: all it has).
  v_lanes int[];
  v_limits int[];
  v_key_limits int[];
  v_rooms int[];
  v_cuts boolean[];
  v_without_room int[];
  -- What was found, and of that what is looked at together.
  v_ids uuid[];
  v_scores bigint[];
  v_found_rows tid[];
  v_found_lanes int[];
  v_depth int := 0;
  v_to int;
  v_batch int := p_limit;
  -- Which slots it gets.
  v_page uuid[];
  v_page_lanes int[];
  v_rows tid[];
  v_is_last boolean;
  v_given int;
  v_all_given int;
  v_slots smallint[];
  v_key_slots smallint[];
  v_claimed int;
  v_all_claimed int;
  v_short int[];
  v_all_short int[];
  v_tried int[] := '{}'; -- limits that ran out in an earlier turn: not asked again
  v_closed int[];
  v_said text;
  v_limit int;
begin
  for v_turn in 1..c_most_turns loop
    exit when v_wanted <= 0;

    if p_has_heads then
      -- Behind what earlier turns have looked at: what this claim has brought up to date stands further on.
      with heads as materialized (
        -- With ties: a job that was moved to another lane may be known in both.
        select open.lane, open.score, open.job_id
        from unnest(p_lanes) as p(lane)
        cross join lateral (
          select h.lane, h.score, h.job_id from longshore.lane_heads h
          where h.parent = p.lane and h.closed_by is null and (h.score, h.job_id) > (v_from_score, v_from_id)
          order by h.score, h.job_id
          fetch first (v_most_heads) rows with ties
        ) open
        order by open.score, open.job_id
        fetch first (v_most_heads) rows with ties
      ), last as (
        select h.score, h.job_id from heads h order by h.score desc, h.job_id desc limit 1
      )
      select coalesce(array_agg(h.lane), '{}'), coalesce(array_agg(h.score), '{}'), coalesce(sum(h.rows), 0) >= v_most_heads,
        (select l.score from last l), (select l.job_id from last l)
      into v_heads, v_head_scores, v_has_more_heads, v_last_score, v_last_id
      from (
        select h.lane, min(h.score) as score, sum(h.rows) as rows
        from (
          select h.lane, h.score, 1 as rows from heads h
          union all
          select left_head, -1, 0 from unnest(v_left_heads) as left_head
        ) h
        group by h.lane
      ) h;
      -- A lane that was not looked at has no better job than the last one that was.
      if not v_has_more_heads then
        v_last_score := c_last_score;
        v_last_id := c_last_id;
      end if;
      v_most_heads := least(4 * v_most_heads, c_most_heads);
      if not longshore.make_key_limits(v_heads) then
        v_answer := 'busy';
        exit;
      end if;
    end if;

    -- One call takes at most half of a large limit: two calls under way with half of the slots each are faster than one with
    -- all.
    with source as materialized (
      select p.lane, p.limit_id, null::int as key_limit from unnest(p_lanes, p_limits) as p(lane, limit_id)
      union all
      select l.id, p.limit_id, k.id
      from unnest(v_heads) as h(lane)
      join longshore.lanes l on l.id = h.lane
      join unnest(p_lanes, p_limits) as p(lane, limit_id) on p.lane = l.parent
      left join longshore.limits k on k.task = l.task and k.key = l.concurrency_key and k.capacity is not null
    ), room as materialized (
      select k.id,
        case when k.key = '' and k.capacity > 20 then (k.capacity + 1) / 2 else k.capacity end as half,
        case when k.id = any (v_tried) then 0 else k.capacity - (
          -- Not joined: on the statistics of an empty table each limit would read the groups of all.
          select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
        ) end as room
      from longshore.limits k
      where k.id = any (array(select s.limit_id from source s union select s.key_limit from source s))
    )
    select array_agg(s.lane), array_agg(s.limit_id), array_agg(s.key_limit),
      array_agg(case when t.id is not null or k.id is not null
        then greatest(0, least(t.room, t.half, k.room, k.half)) end::int),
      array_agg(coalesce(least(t.room, k.room) > least(t.half, k.half), false)), array(select r.id from room r where r.room <= 0 and r.id <> all (v_tried))
    into v_lanes, v_limits, v_key_limits, v_rooms, v_cuts, v_without_room
    from source s
    left join room t on t.id = s.limit_id
    left join room k on k.id = s.key_limit;

    v_depth := greatest(2 * v_depth, least(v_wanted, 4 + 3 * v_wanted / (2 * cardinality(v_lanes))));
    select m.ids, m.scores, m.rows, m.lanes, m.is_last into v_ids, v_scores, v_found_rows, v_found_lanes, v_is_last
    from longshore.merge_heads(
      v_lanes, v_rooms, v_cuts, c_most_rows, v_depth, v_after_score, v_after_id, v_last_score, v_last_id) m;
    v_to := 0;
    v_all_claimed := 0;
    v_all_given := 0;
    v_all_short := '{}';
    -- A batch at a time, as in claim_merged.
    while v_wanted > 0 and v_to < cardinality(v_ids) and v_all_short = '{}' loop
      v_page := v_ids[v_to + 1 : v_to + v_batch];
      v_page_lanes := v_found_lanes[v_to + 1 : v_to + v_batch];
      v_rows := v_found_rows[v_to + 1 : v_to + v_batch];
      v_to := v_to + cardinality(v_page);
      -- Slots first, then the jobs that have them: a job that is locked in vain costs more than a slot that is given back.
      select a.slots, a.key_slots, a.short into v_slots, v_key_slots, v_short
      from longshore.assign_slots(v_page_lanes, v_lanes, v_limits, v_key_limits) a;
      v_token := coalesce(v_token, nextval('longshore.lease_tokens'));
      return query
      with given as materialized (
        -- -1: none is needed; null: none was to be had.
        select p.row, p.slot, p.key_slot from unnest(v_rows, v_slots, v_key_slots) as p(row, slot, key_slot)
        where p.slot is not null and p.key_slot is not null
      ), free as materialized (
        -- As in claim_merged.
        select j.ctid from longshore.jobs j
        where j.ctid = any (array(select g.row from given g)) and j.state::text = 'ready' and j.lane = any (v_lanes)
          and j.lease_token < v_token
        order by j.score, j.id
        limit v_wanted
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
      v_wanted := v_wanted - v_claimed;
      select count(*) into v_given from unnest(v_slots, v_key_slots) as p(slot, key_slot)
      where p.slot is not null and p.key_slot is not null;
      if v_claimed < v_given then
        perform longshore.return_slots(v_page, v_page_lanes, v_slots, v_key_slots, v_token, v_lanes, v_limits, v_key_limits);
        -- As in claim_merged.
        if exists (
          select from longshore.jobs j
          where j.ctid = any (v_rows) and j.state::text = 'ready' and j.lease_token > v_token)
        then
          v_answer := 'more';
        end if;
      end if;
      v_all_claimed := v_all_claimed + v_claimed;
      v_all_given := v_all_given + v_given;
      v_all_short := v_short;
      v_batch := greatest(100, v_wanted);
    end loop;
    v_is_last := v_is_last and v_to = cardinality(v_ids);
    if v_to > 0 then
      v_after_score := v_scores[v_to];
      v_after_id := v_ids[v_to];
    else
      v_after_score := v_last_score;
      v_after_id := v_last_id;
    end if;
    -- A limit that ran out in this turn has ended it early: heads behind that place have been read and not looked at.
    v_from_score := case when v_is_last then v_last_score else v_after_score end;
    v_from_id := case when v_is_last then v_last_id else v_after_id end;

    -- Limits without room for jobs that are ready: full, unless somebody is about to free a slot.
    v_closed := '{}';
    for v_limit in
      select distinct x.id
      from unnest(v_lanes, v_limits, v_key_limits, v_rooms) as s(lane, limit_id, key_limit, room)
      cross join lateral (values (s.limit_id), (s.key_limit)) as x(id)
      where x.id = any (v_all_short) or (x.id = any (v_without_room) and exists (
        select from longshore.jobs j where j.lane = s.lane and j.state = 'ready' offset 0
      ))
      order by 1
    loop
      v_said := longshore.close_limit(v_limit);
      if v_said = 'full' then
        v_closed := v_closed || v_limit;
      end if;
      v_answer := case
        when v_said = 'full' then coalesce(v_answer, 'full')
        when v_said = 'room' and v_all_claimed > 0 then 'more'
        when v_answer is distinct from 'more' then 'busy'
        else v_answer
      end;
    end loop;
    if v_heads <> '{}' then
      perform longshore.tidy_heads(
        array(
          select h.lane from unnest(v_heads, v_head_scores) as h(lane, score)
          where h.score <= v_after_score or v_is_last
        ), v_closed);
    end if;
    -- Whatever could be found was found. Where others held some of it, there may be room for what comes behind.
    exit when v_is_last and not v_has_more_heads and v_all_claimed = v_all_given;
    -- What is left of a limit of which half is taken is for the next call.
    if v_all_claimed > 0 and exists (
      select from unnest(v_lanes, v_cuts) as s(lane, is_cut) where s.is_cut and s.lane = any (v_found_lanes[:v_to])
    ) then
      v_answer := 'more';
      exit;
    end if;
    if v_turn = c_most_turns then
      v_answer := case when v_wanted < p_limit then 'more' else 'busy' end;
    end if;
    v_tried := v_tried || v_all_short;
    -- Somebody who has not committed holds what is known of a lane as it is, or the lane's best job.
    if v_heads <> '{}' and v_wanted > 0 then
      v_left_heads := array(
        select distinct h.lane from longshore.lane_heads h
        where h.lane = any (v_heads) and h.closed_by is null and (h.score, h.job_id) <= (v_from_score, v_from_id)
          and exists (
            select from longshore.jobs j
            where j.lane = h.lane and j.state = 'ready' and (j.score, j.id) > (v_after_score, v_after_id) offset 0
          )
      );
    end if;
  end loop;

  if v_answer is not null then
    id := null;
    answer := v_answer;
    return next;
  end if;
end
$$;
