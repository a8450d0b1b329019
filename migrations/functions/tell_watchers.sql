-- Tell whoever watches groups (rows of awaited without a job) what has become of some: p_events are of p_groups.
create function longshore.tell_watchers(p_groups uuid[], p_events text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.waiter_' || a.waiter, g.id || ' ' || g.event)
  from longshore.awaited a, unnest(p_groups, p_events) as g(id, event)
  where a.job_id = '00000000-0000-0000-0000-000000000000';
end
$$;
