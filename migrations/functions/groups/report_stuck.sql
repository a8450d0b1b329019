-- A part of watch_groups: this group is stuck, as the caller has seen it. Stores that and tells watchers, once; p_cancels: cancels it.
-- Returns the report, or null when another transaction locks the group or was faster: the next look comes back to it.
create function longshore.report_stuck(p_group longshore.groups, p_cancels boolean) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_report jsonb;
begin
  perform from longshore.groups g
  where g.id = p_group.id /* guard: not-ended */ and g.finished_at is null /* end not-ended */
    and g.seen = p_group.seen and g.stuck is not distinct from p_group.stuck
  for no key update skip locked;
  if not found then
    return null;
  end if;
  v_report := longshore.stuck_report(p_group.id, p_group.seen_at) || jsonb_build_object('isNew', p_group.stuck is null);
  if p_group.stuck is null then
    update longshore.groups g
    set stuck = jsonb_build_object('since', v_report -> 'since', 'jobs', v_report -> 'jobs') where g.id = p_group.id;
    perform longshore.tell_watchers(array[p_group.id], '{stuck}');
  end if;
  if p_cancels then
    begin
      v_report := v_report || jsonb_build_object('cancel', longshore.cancel_any_group(p_group.id));
    exception when lock_not_available or deadlock_detected then
      null; -- told as stuck, cancelled by a later look
    end;
  end if;
  return v_report;
end
$$;
