-- The id of the lane for jobs of this kind, made when there is none. Never waits for another transaction: lanes
-- are not unique, so nothing can conflict, at any isolation level.
create function longshore.find_lane(p_queue text, p_task text, p_tag text, p_constraint_tag text) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane int;
begin
  select min(l.id) into v_lane
  from longshore.lanes l
  where l.task = p_task and l.tag = p_tag and l.constraint_tag = p_constraint_tag and l.queue = p_queue;
  if v_lane is null then
    insert into longshore.lanes (queue, task, tag, constraint_tag)
    values (p_queue, p_task, p_tag, p_constraint_tag)
    returning id into v_lane;
  end if;
  return v_lane;
end
$$;
