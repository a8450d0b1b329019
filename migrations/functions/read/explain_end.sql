-- The part of explain for a job that has ended: how, when and why. `parent`: which job it was to run after has not succeeded;
-- `cause`: where that began, further up.
create function longshore.explain_end(p_id uuid, p_role oid, p_sees_all boolean) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  c_most_steps constant int := 1000;
  v_facts jsonb;
  v_at uuid := p_id;
  v_parent record;
begin
  select jsonb_build_object('id', f.id, 'state', f.state, 'task', l.task, 'attempts', f.attempts, 'end',
    jsonb_build_object('at', f.finished_at, 'workerId', f.worker_id, 'code', f.error ->> 'code', 'error', longshore.error_text(f.error)))
  into v_facts
  from longshore.finished_jobs f left join longshore.lanes l on l.id = f.lane
  where f.id = p_id and (p_sees_all or longshore.is_own(p_role, f.enqueued_by)) order by f.finished_at desc limit 1;

  if v_facts -> 'end' ->> 'code' in ('DEPENDENCY_FAILED', 'DEPENDENCY_CANCELLED') then
    for v_step in 1..c_most_steps loop
      select f.id, l.task, f.state, f.error into v_parent
      from longshore.edges e
      cross join lateral (
        select f.id, f.lane, f.state, f.error, f.finished_at from longshore.finished_jobs f
        where f.id = e.parent and (p_sees_all or longshore.is_own(p_role, f.enqueued_by)) offset 0) f
      left join longshore.lanes l on l.id = f.lane
      where e.child = v_at and e.policy <> 'run' and f.state <> 'succeeded'
      order by f.finished_at, f.id limit 1;
      exit when not found;
      v_at := v_parent.id;
      v_facts := v_facts || jsonb_build_object(case when v_step = 1 then 'parent' else 'cause' end, jsonb_build_object(
        'id', v_parent.id, 'task', v_parent.task, 'state', v_parent.state, 'error', longshore.error_text(v_parent.error)));
      exit when v_parent.error ->> 'code' is distinct from 'DEPENDENCY_FAILED'
        and v_parent.error ->> 'code' is distinct from 'DEPENDENCY_CANCELLED';
    end loop;
  end if;
  return v_facts;
end
$$;
