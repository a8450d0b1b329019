-- add_to_group for many small groups at once, all of them new and with ids that are not in use: one commit, and each
-- statement once for all of them. p_group_nos: the number in p_groups of each job's group; p_children, p_parents (numbers in
-- p_ids), p_policies: the edges, each within one group. All or nothing: a caller that is refused submits them one by one.
-- public: producer
create function longshore.add_to_groups(
  p_groups uuid[], p_names text[], p_group_nos int[],
  p_shapes jsonb, p_ids uuid[], p_shape_nos int[], p_payloads text,
  p_children int[], p_parents int[], p_policies longshore.edge_policy[],
  p_traces text[] default null
) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '10s'
-- As in pass_on.
set enable_seqscan = off
-- As in settle_and_claim.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_count int;
begin
  insert into longshore.groups (id, name) select g.id, nullif(g.name, '') from unnest(p_groups, p_names) as g(id, name);
  perform longshore.insert_jobs(
    p_shapes, p_ids, p_shape_nos, p_payloads, false, false,
    p_groups => array(select p_groups[n.group_no] from unnest(p_group_nos) with ordinality as n(group_no, no) order by n.no),
    p_pending => array(
      select coalesce(c.pending, 0)::int from generate_subscripts(p_ids, 1) as n(no)
      left join (select e.child, count(*) as pending from unnest(p_children) as e(child) group by e.child) c on c.child = n.no
      order by n.no),
    p_traces => p_traces);
  insert into longshore.edges (parent, child, policy)
  select p_ids[e.parent], p_ids[e.child], e.policy from unnest(p_children, p_parents, p_policies) as e(child, parent, policy)
  where p_group_nos[e.parent] = p_group_nos[e.child];
  get diagnostics v_count = row_count;
  /* guard: own-group */ if v_count <> cardinality(p_parents) then
    raise exception 'longshore: a job can only run after jobs of its own group' using errcode = 'LS004';
  end if; /* end own-group */
end
$$;
