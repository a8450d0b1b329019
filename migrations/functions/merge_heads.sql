-- The best p_wanted ready jobs behind (p_after_score, p_after_id) over many lanes, in order, without locks. Reads no more than
-- p_depth of each lane: what lies behind the first lane that was not read to its end may be out of order, and is left for
-- the next turn. p_rooms: how many each lane may give (null: all); p_cuts: which of them could give more in the next call.
-- (p_last_score, p_last_id): the last place to look at.
-- Returns the ids, where their rows are, their lanes, the place behind which to go on, and whether there is nothing left.
create function longshore.merge_heads(
  p_lanes int[], p_rooms int[], p_cuts boolean[], p_wanted int, p_depth int, p_after_score bigint, p_after_id uuid,
  p_last_score bigint, p_last_id uuid
) returns table (ids uuid[], rows tid[], lanes int[], after_score bigint, after_id uuid, is_last boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_most int := least(p_depth, p_wanted);
begin
  with head as materialized (
    select l.lane, l.room, l.is_cut, h.ctid, h.id, h.score, h.no
    from unnest(p_lanes, p_rooms, p_cuts) as l(lane, room, is_cut)
    cross join lateral (
      select j.ctid, j.id, j.score, row_number() over (order by j.score, j.id) as no
      from longshore.jobs j
      where j.lane = l.lane and j.state = 'ready' and (j.score, j.id) > (p_after_score, p_after_id)
        and (j.score, j.id) <= (p_last_score, p_last_id)
      order by j.score, j.id
      limit least(v_most, l.room)
    ) h
  ), unread as (
    -- The first place at which a lane was left that may go on. One that has given all there is room for may not.
    select h.score, h.id from head h
    where h.no = v_most and (h.room is null or h.room > v_most) or h.is_cut and h.no = h.room
    order by h.score, h.id limit 1
  ), page as (
    select h.* from head h
    where not exists (select from unread u where (h.score, h.id) > (u.score, u.id))
    order by h.score, h.id
    limit p_wanted
  )
  select coalesce(array_agg(p.id order by p.score, p.id), '{}'), coalesce(array_agg(p.ctid order by p.score, p.id), '{}'),
    coalesce(array_agg(p.lane order by p.score, p.id), '{}'), max(p.score),
    count(*) < p_wanted and not exists (select from unread)
  into ids, rows, lanes, after_score, is_last
  from page p;
  after_id := ids[cardinality(ids)];
  return next;
end
$$;
