-- A claim found no slot of this limit. `full`: that is certain, since all its groups are held here and none has room; the
-- limit is closed until somebody frees a slot, who has to wait for these groups and therefore sees that it is closed.
-- `busy`: somebody holds a group, so nothing is certain: look again. `room`: a slot has been freed meanwhile.
create function longshore.close_limit(p_limit int) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in lock_jobs.
set lock_timeout = '10ms'
as $$
declare
  v_held int;
  v_groups int;
  v_used bigint;
  v_era int := (select e.era from longshore.slot_groups e where e.limit_id = p_limit order by e.era desc limit 1);
begin
  select count(*) into v_held from (
    select from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era /* guard: group-locks */ order by g.number for update skip locked /* end group-locks */
  ) held;
  select count(*), sum(g.used) into v_groups, v_used from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era;
  if /* guard: all-groups */ v_held < v_groups /* end all-groups */ then
    return 'busy';
  end if;
  perform from longshore.limits k where k.id = p_limit for no key update skip locked;
  if not found then
    return 'busy';
  end if;
  -- No capacity: the limit has just been removed.
  if (select coalesce(k.capacity > v_used, true) from longshore.limits k where k.id = p_limit) then
    return 'room';
  end if;
  update longshore.limits k set is_full = true where k.id = p_limit and not k.is_full;
  return 'full';
end
$$;
