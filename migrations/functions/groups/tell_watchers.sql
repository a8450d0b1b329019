-- Tell the processes that watch groups (rows of awaited without a job) what happened to some of their own: p_events are of p_groups.
create function longshore.tell_watchers(p_groups uuid[], p_events text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.waiter_' || a.waiter, g.id || ' ' || g.event)
  from longshore.awaited a, unnest(p_groups, p_events) as g(id, event)
  cross join lateral (select o.enqueued_by from longshore.groups o where o.id = g.id offset 0) o
  where a.job_id = '00000000-0000-0000-0000-000000000000'
    and (has_column_privilege(a.asked_by, 'longshore.jobs', 'id', 'select') or longshore.is_own(a.asked_by, o.enqueued_by));
end
$$;
