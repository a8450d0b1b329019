-- Add jobs to a group, which is made with them where p_is_new; all of them with what they run after. Jobs are given as to
-- insert_jobs. p_children (numbers in p_ids), p_parents, p_policies: the edges; the parents are among these jobs, or were added before.
-- p_held: those of the parents that this transaction has not added itself. A parent may run, or have ended: then its child is ready, or
-- ends by the edge's policy. p_retried: an earlier try may have been committed.
-- Answers `added`; `again` when an earlier try was committed, and `known` when another caller has made the group: both change nothing.
-- public: producer
create function longshore.add_to_group(
  p_group uuid, p_name text, p_is_new boolean, p_retried boolean,
  p_shapes jsonb, p_ids uuid[], p_shape_nos int[], p_payloads text, p_workflows text[], p_halts boolean[],
  p_children int[], p_parents uuid[], p_policies longshore.edge_policy[], p_held uuid[],
  p_traces text[] default null
) returns text
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
  v_role oid := longshore.acting_role();
  v_group longshore.groups;
  v_is_known boolean := false;
  v_strange uuid;
  v_is_foreign boolean;
  v_pending int[];
  v_doomed uuid[];
  v_doomed_states longshore.job_state[];
begin
  if p_is_new then
    insert into longshore.groups (id, name) values (p_group, p_name) on conflict (id) do nothing;
    if not found then
      if not exists (select from longshore.groups g where g.id = p_group and longshore.is_own(v_role, g.enqueued_by)) then
        raise exception 'longshore: group id % is taken by a group of another user', p_group
          using errcode = 'LS004', hint = 'Choose another id.';
      end if;
      v_is_known := true;
    end if;
  else
    -- Locked until the commit: the group cannot end meanwhile.
    select * into v_group from longshore.groups g
    where g.id = p_group and longshore.is_own(v_role, g.enqueued_by) /* guard: group-lock */ for key share /* end group-lock */;
    if not found then
      raise exception 'longshore: there is no group %', p_group using errcode = 'LS002', hint = 'Was it submitted by this service, and has its transaction been committed?';
    end if;
  end if;
  if p_retried and (not p_is_new or v_is_known) then
    /* guard: own-try */ if exists (select from longshore.jobs j where j.id = p_ids[1])
      or exists (select from longshore.finished_jobs f where f.id = p_ids[1])
    then
      return 'again';
    end if; /* end own-try */
  end if;
  if v_is_known then
    return 'known';
  end if;
  /* guard: not-ended */ if v_group.finished_at is not null or v_group.cancelled_at is not null then
    raise exception 'longshore: group % has %: no job can be added to it', p_group,
      case when v_group.finished_at is not null then 'ended as ' || v_group.end_state else 'been cancelled' end
      using errcode = 'LS003', hint = 'Submit a new group.';
  end if; /* end not-ended */

  -- A parent that is just ending is waited for; one that has not ended cannot until this transaction has.
  if p_held <> '{}' then
    /* guard: parent-locks */ perform from longshore.jobs j
    where j.id = any (p_held) and j.group_id = p_group order by j.id for key share; /* end parent-locks */
  end if;
  if p_parents <> '{}' then
    with parents as materialized (
      select e.parent, bool_or(o.id is not null) as is_own from unnest(p_parents) as e(parent)
      left join unnest(p_ids) as o(id) on o.id = e.parent
      group by e.parent
    ), known as materialized (
      select p.parent, case when p.is_own then p_group else coalesce(j.group_id, f.group_id) end as group_id,
        p.is_own or j.id is not null as is_open, p.is_own or j.id is not null or f.id is not null as is_known, f.state,
        coalesce(j.enqueued_by, f.enqueued_by) as enqueued_by
      from parents p
      left join lateral (
        select j.id, j.group_id, j.enqueued_by from longshore.jobs j where j.id = p.parent and not p.is_own offset 0) j on true
      left join lateral (
        select f.id, f.state, f.group_id, f.enqueued_by from longshore.finished_jobs f
        where f.id = p.parent and not p.is_own and j.id is null order by f.finished_at desc limit 1
      ) f on true
    ), edges as materialized (
      select e.child, k.parent, e.policy, k.is_open, k.state, k.group_id is distinct from p_group as is_strange,
        k.is_known, k.enqueued_by
      from unnest(p_children, p_parents, p_policies) as e(child, parent, policy)
      join known k on k.parent = e.parent
    ), counted as (
      select e.child, count(*) filter (
          -- A child that ends at once waits until then.
          where e.is_open or (e.state <> 'succeeded' and e.policy <> 'run')) as pending,
        max(longshore.doom_of(e.policy)) filter (where not e.is_open and e.state <> 'succeeded') as doom
      from edges e group by e.child
    )
    select (select e.parent from edges e where e.is_strange limit 1),
      (select e.is_known and longshore.is_own(v_role, e.enqueued_by) from edges e where e.is_strange limit 1),
      array(select coalesce(c.pending, 0)::int from generate_subscripts(p_ids, 1) as n(no) left join counted c on c.child = n.no order by n.no),
      array(select p_ids[c.child] from counted c where c.doom is not null order by c.child),
      array(select c.doom from counted c where c.doom is not null order by c.child)
    into v_strange, v_is_foreign, v_pending, v_doomed, v_doomed_states;
    /* guard: own-group */ if v_strange is not null then
      raise exception 'longshore: job %, which another is to run after, %', v_strange,
        case when v_is_foreign then 'does not belong to group ' || p_group else 'is not known (or its history has been dropped)' end
        using errcode = 'LS004', hint = 'A job can only run after jobs of its own group.';
    end if; /* end own-group */
  end if;

  perform longshore.insert_jobs(
    p_shapes, p_ids, p_shape_nos, p_payloads, false, false, p_workflows, p_halts, p_group, v_pending, p_traces);
  insert into longshore.edges (parent, child, policy)
  select e.parent, p_ids[e.child], e.policy from unnest(p_children, p_parents, p_policies) as e(child, parent, policy);
  if v_doomed <> '{}' then
    perform longshore.pass_on('{}', '{}', p_doomed => v_doomed, p_doomed_states => v_doomed_states);
  end if;
  return 'added';
end
$$;
