-- The jobs of this partition of the history that are kept only until before p_before are about to be dropped: forget the edges that
-- lead to them, and let groups that have not ended remember how many there were.
create function longshore.forget_links(p_partition text, p_before date) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format($sql$
    update longshore.groups g
    set succeeded = g.succeeded + c.succeeded, failed = g.failed + c.failed, cancelled = g.cancelled + c.cancelled,
      dependency_failed = g.dependency_failed + c.dependency_failed
    from (
      select f.group_id, count(*) filter (where f.state = 'succeeded') as succeeded,
        count(*) filter (where f.state = 'failed') as failed, count(*) filter (where f.state = 'cancelled') as cancelled,
        count(*) filter (where f.state = 'dependency_failed') as dependency_failed
      from longshore.%I f where f.group_id is not null and f.keep_until < $1 group by f.group_id
    ) c
    where g.id = c.group_id and g.finished_at is null$sql$, p_partition) using p_before;
  execute format(
    'delete from longshore.edges e using longshore.%I f where f.group_id is not null and f.keep_until < $1 and e.child = f.id',
    p_partition) using p_before;
end
$$;
