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
  -- Spelt so that the GIN indexes on the arrays can serve it; `= any` cannot use them.
  return query
  select w.id from longshore.workers w
  where w.tags @> array[v_lane.tag] and w.constraint_tags @> array[v_lane.constraint_tag]
    and v_lane.queue = any (w.queues) and v_lane.task = any (w.tasks)
    and w.expires_at > now() and w.dead_at is null and w.drained_at is null;
end
$$;
