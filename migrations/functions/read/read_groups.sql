-- Groups by id, each with how many of its jobs are in each state, see the view group_status; only those that have ended, if asked. A
-- producer is told of its own.
-- public: producer, reader
create function longshore.read_groups(p_ids uuid[], p_only_ended boolean) returns setof longshore.group_status
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- By the primary keys, whatever the statistics say.
set enable_seqscan = off
as $$
declare
  v_role oid := longshore.acting_role();
  v_sees_all boolean := has_column_privilege(v_role, 'longshore.jobs', 'id', 'select');
begin
  return query
  select s.* from longshore.groups g
  cross join lateral (select s.* from longshore.group_status s where s.id = g.id) s
  where g.id = any (p_ids) and (v_sees_all or longshore.is_own(v_role, g.enqueued_by))
    and (g.finished_at is not null or not p_only_ended);
end
$$;
