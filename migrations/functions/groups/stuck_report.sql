-- What is known about a group that does not move: its counts, and of at most 20 jobs why they do not start, those first that
-- wait for no other job.
create function longshore.stuck_report(p_group uuid, p_since timestamptz) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
-- What it says of times is kept and shown to others.
set datestyle = 'ISO'
set timezone = 'UTC'
as $$
declare
  v_ids uuid[];
begin
  v_ids := array(
    select j.id from longshore.jobs j where j.group_id = p_group
    order by j.state desc, exists (
      select from longshore.edges e
      where e.child = j.id and exists (select from longshore.jobs p where p.id = e.parent offset 0) offset 0), j.id
    limit 20);
  return (
    select jsonb_build_object(
      'id', g.id, 'name', g.name, 'since', p_since, 'createdAt', g.created_at,
      'counts', jsonb_build_object('waiting', g.waiting, 'scheduled', g.scheduled, 'ready', g.ready, 'running', g.running,
        'succeeded', g.succeeded, 'failed', g.failed, 'cancelled', g.cancelled, 'dependency_failed', g.dependency_failed),
      'jobs', coalesce((
        select jsonb_agg(
          jsonb_build_object('id', j.id, 'task', l.task, 'state', j.state, 'reason', case
            when j.state = 'running' then format(
              'runs since %s under worker %s, which is gone, and nobody has taken it back', j.started_at, j.worker_id)
            when j.state = 'scheduled' then format('was due at %s, and nobody has made it ready',
              longshore.run_at_of(j.score))
            else coalesce(b.reason, format('is ready, and none of the %s workers that may run it takes it',
              (select count(*) from longshore.eligible_workers(j.lane))))
          end) order by n.no)
        from unnest(v_ids) with ordinality as n(id, no)
        cross join lateral (
          select j.id, j.lane, j.state, j.score, j.worker_id, j.started_at from longshore.jobs j where j.id = n.id offset 0) j
        left join longshore.lanes l on l.id = j.lane
        left join longshore.blocked b on b.id = n.id
      ), '[]'))
    from longshore.group_status g where g.id = p_group);
end
$$;
