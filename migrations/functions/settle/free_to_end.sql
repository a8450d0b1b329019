-- Of the jobs, whose rows the caller has locked, those that can be ended now: no other transaction locks a dependent of
-- theirs, their workflow, or the next job of it. Locks all of these without waiting.
create function longshore.free_to_end(p_ids uuid[]) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
as $$
declare
  v_needed uuid[];
  v_free uuid[];
  v_workflows bigint[];
  v_free_workflows bigint[];
begin
  v_workflows := array(
    select distinct w.id from unnest(p_ids) as p(id)
    cross join lateral (select j.workflow from longshore.jobs j where j.id = p.id and j.has_turn offset 0) j
    cross join lateral (select w.id from longshore.workflows w where w.id = j.workflow offset 0) w);
  v_free_workflows := array(
    select w.id from longshore.workflows w where w.id = any (v_workflows) order by w.key for update skip locked);
  select coalesce(array_agg(distinct n.id), '{}') into v_needed
  from (
    select j.id from unnest(p_ids) as p(id)
    cross join lateral (select e.child from longshore.edges e where e.parent = p.id offset 0) e
    cross join lateral (select j.id from longshore.jobs j where j.id = e.child offset 0) j
    union all
    select n.id from unnest(p_ids) as p(id)
    cross join lateral (
      select j.workflow, j.workflow_seq from longshore.jobs j where j.id = p.id and j.has_turn offset 0) w
    cross join lateral (
      select j.id from longshore.jobs j
      where j.workflow = w.workflow and j.workflow_seq > w.workflow_seq order by j.workflow_seq limit 1) n
  ) n;
  v_free := array(
    select j.id from longshore.jobs j where j.id = any (v_needed) order by j.id for no key update skip locked);
  if cardinality(v_free) = cardinality(v_needed) and cardinality(v_free_workflows) = cardinality(v_workflows) then
    return p_ids;
  end if;
  return array(
    select p.id from unnest(p_ids) as p(id)
    cross join lateral (select j.workflow from longshore.jobs j where j.id = p.id offset 0) j
    where not exists (
        select from longshore.edges e where e.parent = p.id and e.child = any (v_needed) and e.child <> all (v_free) offset 0)
      and (j.workflow <> all (v_workflows) or j.workflow = any (v_free_workflows)) is not false
      and not exists (
        select from longshore.jobs n where n.workflow = j.workflow and n.id = any (v_needed) and n.id <> all (v_free) offset 0));
end
$$;
