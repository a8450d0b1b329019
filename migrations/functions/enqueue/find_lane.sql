-- The id of the lane for these jobs, made when there is none. A lane with a concurrency key stands below the one
-- without. Never waits for another transaction of the same kind: lanes are not unique, so nothing can conflict, at any isolation level.
--
-- The leader deletes lanes that are not used any more, see forget_lanes. One that is not marked as unused will be there as long as this
-- transaction: its number is taken before the look, and marks that are set afterwards count only when it has ended. Above READ COMMITTED the look may
-- be older than the number; use_lane holds the lane then.
create function longshore.find_lane(
  p_queue text, p_task text, p_tag text, p_constraint_tag text, p_key text default ''
) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane int;
  v_transaction xid8;
begin
  /* guard: number-first */ v_transaction := pg_current_xact_id(); /* end number-first */
  if p_key = '' then
    select min(l.id) into v_lane
    from longshore.lanes l
    where l.task = p_task and l.tag = p_tag and l.constraint_tag = p_constraint_tag and l.queue = p_queue
      and l.concurrency_key = '' /* guard: not-marked */ and l.unused_since is null /* end not-marked */;
  else
    select min(l.id) into v_lane
    from longshore.lanes l
    where l.task = p_task and l.tag = p_tag and l.constraint_tag = p_constraint_tag and l.queue = p_queue
      and l.concurrency_key = p_key and l.concurrency_key <> '' /* guard: not-marked */ and l.unused_since is null /* end not-marked */;
  end if;
  /* point: found */
  if v_lane is null /* guard: own-snapshot */ or current_setting('transaction_isolation') <> 'read committed' /* end own-snapshot */ then
    v_lane := longshore.use_lane(p_queue, p_task, p_tag, p_constraint_tag, p_key);
  end if;
  if v_lane is null then
    if (p_queue || p_task || p_tag || p_key) ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then
      raise exception 'longshore: names of queues, tasks and tags and concurrency keys hold no control characters'
        using errcode = 'invalid_parameter_value';
    end if;
    if p_key = '' then
      perform longshore.check_queues(p_queue);
    end if;
    insert into longshore.lanes (queue, task, tag, constraint_tag, concurrency_key, parent)
    values (p_queue, p_task, p_tag, p_constraint_tag, p_key,
      case when p_key <> '' then longshore.find_lane(p_queue, p_task, p_tag, p_constraint_tag) end)
    returning id into v_lane;
  end if;
  return v_lane;
end
$$;
