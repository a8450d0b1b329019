-- Where a claim may find jobs, and how many each lane may give: the worker's lanes (p_lanes, with the limits of their tasks) and those of
-- their lanes with keys that have ready jobs (p_key_lanes). `rooms`: null where no limit is in play. `cuts`: the lane could give more
-- in the next call. `without_room`: limits that have none. p_spent: limits that have run out in this claim and are not asked again.
-- p_has_waiters: another worker waits for a limit, see limit_waiters. `is_left`: slots are left to it. `is_lost`: the limit of a key has just been
-- forgotten, see forget_limits: nothing may be claimed of its lane before the limit is made anew.
create function longshore.limit_rooms(
  p_worker int, p_lanes int[], p_limits int[], p_key_lanes int[], p_spent int[], p_has_waiters boolean,
  out lanes int[], out limits int[], out key_limits int[], out rooms int[], out cuts boolean[], out without_room int[],
  out is_left boolean, out is_lost boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids int[];
  v_rooms int[];
  v_room int;
begin
  is_left := false;
  with source as materialized (
    select p.lane, p.limit_id, null::int as key_limit, false as is_lost from unnest(p_lanes, p_limits) as p(lane, limit_id)
    union all
    -- In one statement with the limits: of a task that limits its keys each has one, made by this claim or an earlier one.
    select l.id, p.limit_id, k.id, /* guard: known-limit */ k.id is null and t.concurrency_per_key is not null /* end known-limit */
    from unnest(p_key_lanes) as h(lane)
    -- By its id: a parent may have very many lanes.
    cross join lateral (select l.id, l.task, l.parent, l.concurrency_key from longshore.lanes l where l.id = h.lane offset 0) l
    left join longshore.tasks t on t.name = l.task
    join unnest(p_lanes, p_limits) as p(lane, limit_id) on p.lane = l.parent
    left join longshore.limits k on k.task = l.task and k.key = l.concurrency_key and k.capacity is not null
  ), room as materialized (
    -- One call takes at most half of a large limit: two calls under way with half of the slots each are faster than one with all.
    select k.id,
      case when k.key = '' and k.capacity > 20 then (k.capacity + 1) / 2 else k.capacity end as half,
      case when k.id = any (p_spent) then 0 else k.capacity - (
        -- Not joined: on the statistics of an empty table each limit would read the groups of all.
        select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)
      ) end as room
    from longshore.limits k
    where k.id = any (array(select s.limit_id from source s union select s.key_limit from source s))
  )
  select array_agg(s.lane), array_agg(s.limit_id), array_agg(s.key_limit),
    array_agg(case when t.id is not null or k.id is not null
      then greatest(0, least(t.room, t.half, k.room, k.half)) end::int),
    array_agg(coalesce(least(t.room, k.room) > least(t.half, k.half), false)),
    array(select r.id from room r where r.room <= 0 and r.id <> all (p_spent)),
    array(select r.id from room r where r.room > 0 order by r.id), array(select r.room::int from room r where r.room > 0 order by r.id),
    bool_or(s.is_lost)
  into lanes, limits, key_limits, rooms, cuts, without_room, v_ids, v_rooms, is_lost
  from source s
  left join room t on t.id = s.limit_id
  left join room k on k.id = s.key_limit;

  if p_has_waiters then
    for n in 1..cardinality(v_ids) loop
      v_room := longshore.leave_to_waiters(
        p_worker, v_ids[n], v_rooms[n],
        array(
          select s.lane from unnest(lanes, limits, key_limits) as s(lane, limit_id, key_limit)
          where v_ids[n] in (s.limit_id, s.key_limit)));
      is_left := is_left or v_room < v_rooms[n];
      v_rooms[n] := v_room;
    end loop;
    select array_agg(least(s.room, t.room, k.room) order by s.no) into rooms
    from unnest(lanes, limits, key_limits, rooms) with ordinality as s(lane, limit_id, key_limit, room, no)
    left join unnest(v_ids, v_rooms) as t(id, room) on t.id = s.limit_id
    left join unnest(v_ids, v_rooms) as k(id, room) on k.id = s.key_limit;
  end if;
end
$$;
