-- The best ready jobs behind (p_after_score, p_after_id) over many lanes, in order, without locks: at most p_wanted. Reads no more
-- than p_depth of each lane: what lies behind the first lane that was not read to its end may be out of order, and is left for
-- the next turn. p_rooms: how many each lane may give (null: all); p_cuts: which of them could give more in the next call.
-- (p_last_score, p_last_id): the last place to look at.
-- Returns their ids, scores and lanes, where their rows are, and whether there is nothing left behind them.
create function longshore.merge_lanes(
  p_lanes int[], p_rooms int[], p_cuts boolean[], p_wanted int, p_depth int, p_after_score bigint, p_after_id uuid,
  p_last_score bigint, p_last_id uuid
) returns table (ids uuid[], scores bigint[], rows tid[], lanes int[], is_last boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_most int := least(p_depth, p_wanted);
  -- How many of what was read are in order.
  v_end int;
begin
  -- Only read and sorted here: a window or a second look at the rows would cost twice as much as reading them.
  select coalesce(array_agg(h.id), '{}'), coalesce(array_agg(h.score), '{}'), coalesce(array_agg(h.ctid), '{}'),
    coalesce(array_agg(h.lane), '{}')
  into ids, scores, rows, lanes
  from (
    select l.lane, j.id, j.ctid, j.score
    from unnest(p_lanes, p_rooms) as l(lane, room)
    cross join lateral (
      select j.id, j.ctid, j.score from longshore.jobs j
      where j.lane = l.lane /* guard: ready */ and j.state = 'ready' /* end ready */ and (j.score, j.id) > (p_after_score, p_after_id)
        and (j.score, j.id) <= (p_last_score, p_last_id)
      order by j.score, j.id
      limit least(v_most, l.room)
    ) j
    order by j.score, j.id
  ) h;
  -- The first place at which a lane was left that may go on: it gave all that was asked of it, and its last one stands there. One
  -- that has given all there is room for may not go on.
  if p_rooms is null then
    select min(g.last) into v_end
    from (select max(p.no) as last from unnest(lanes) with ordinality as p(lane, no) group by p.lane having count(*) = v_most) g;
  else
    select min(g.last) into v_end
    from (select p.lane, max(p.no) as last, count(*) as jobs from unnest(lanes) with ordinality as p(lane, no) group by p.lane) g
    join unnest(p_lanes, p_rooms, p_cuts) as l(lane, room, is_cut) on l.lane = g.lane
    where g.jobs = v_most and (l.room is null or l.room > v_most) or l.is_cut and g.jobs = l.room;
  end if;
  is_last := v_end is null and cardinality(ids) < p_wanted;
  v_end := least(v_end, p_wanted);
  if v_end < cardinality(ids) then
    ids := ids[:v_end];
    scores := scores[:v_end];
    rows := rows[:v_end];
    lanes := lanes[:v_end];
  end if;
  return next;
end
$$;
