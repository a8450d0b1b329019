-- Delete these rows of a partition of the history, jobs that need not be kept any longer, with the edges that lead to them. Groups that have not
-- ended remember in the same transaction how many there were, so that no count is ever lost or doubled: close_groups and group_status add
-- what a group remembers to the rows that it has. Waits for no other transaction: rows of a group that another one holds are passed over.
-- is_more: these rows have so many edges that the rest of those goes with the next call; the rows are still there.
create function longshore.forget_links(p_partition text, p_rows tid[], out passed_over int, out is_more boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
as $$
declare
  c_edges constant int := 5000;
  v_ids uuid[];
  v_groups uuid[];
  v_held uuid[];
  v_busy uuid[];
  v_deleted int;
begin
  is_more := false;
  execute format(
    'select coalesce(array_agg(f.id), ''{}''), coalesce(array_agg(distinct f.group_id) filter (where f.group_id is not null), ''{}'')
     from longshore.%I f where f.ctid = any ($1)', p_partition) into v_ids, v_groups using p_rows;
  v_held := array(
    select g.id from longshore.groups g where g.id = any (v_groups) and g.finished_at is null
    order by g.id /* guard: group-lock */ for no key update skip locked /* end group-lock */);
  /* point: groups-held */
  -- A statement of its own: a group that was closed meanwhile has counted its rows.
  v_busy := array(
    select g.id from longshore.groups g where g.id = any (v_groups) and g.finished_at is null and g.id <> all (v_held));
  execute format(
    'select count(*) filter (where f.group_id = any ($2)),
       coalesce(array_agg(f.id) filter (where f.group_id is null or f.group_id <> all ($2)), ''{}''),
       coalesce(array_agg(f.ctid) filter (where f.group_id is null or f.group_id <> all ($2)), ''{}'')
     from longshore.%I f where f.ctid = any ($1) and f.id = any ($3)', p_partition)
  into passed_over, v_ids, p_rows using p_rows, /* guard: passed-over */ v_busy || /* end passed-over */ '{}'::uuid[], v_ids;

  delete from longshore.edges e where e.ctid = any (array(
    select d.ctid from unnest(v_ids) as c(id)
    cross join lateral (select e.ctid from longshore.edges e where e.child = c.id offset 0) d
    limit c_edges));
  get diagnostics v_deleted = row_count;
  if v_deleted = c_edges then
    is_more := true;
    return;
  end if;
  execute format(
    'with gone as (
       /* guard: counted-once */ delete from longshore.%I f where f.ctid = any ($1) and f.id = any ($2)
       returning f.group_id, f.state /* end counted-once */
     )
     update longshore.groups g
     set succeeded = g.succeeded + c.succeeded, failed = g.failed + c.failed, cancelled = g.cancelled + c.cancelled,
       dependency_failed = g.dependency_failed + c.dependency_failed
     from (
       select o.group_id, count(*) filter (where o.state = ''succeeded'') as succeeded,
         count(*) filter (where o.state = ''failed'') as failed, count(*) filter (where o.state = ''cancelled'') as cancelled,
         count(*) filter (where o.state = ''dependency_failed'') as dependency_failed
       from gone o where o.group_id = any ($3) group by o.group_id
     ) c
     where g.id = c.group_id', p_partition) using p_rows, v_ids, v_held;
  /* point: counted */
end
$$;
