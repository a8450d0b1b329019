-- The live workers that may run jobs of this lane and are not drained.
create function longshore.eligible_workers(p_lane int) returns setof int
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_lane longshore.lanes;
begin
  select * into v_lane from longshore.lanes l where l.id = p_lane;
  return query
  select w.worker_id from longshore.worker_lanes w
  where w.lane = p_lane and w.expires_at > now() and w.dead_at is null and w.drained_at is null
    -- The view says so too, but no index can serve its `= any`. Tags that are known before the query is planned let the planner
    -- choose the better one of the two GIN indexes.
    and w.worker_tags @> array[v_lane.tag] and w.worker_constraint_tags @> array[v_lane.constraint_tag];
end
$$;
