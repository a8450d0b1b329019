-- An intended copy: claim and settle as they would be if there were no limits. `concurrency-baseline` puts it into its database and
-- compares the cost of a job with that of the real functions. Its claim reads no limits and no heads of keys; its settle looks for no
-- slots. Everything else is as in migrations/functions/: a change of claim.sql or settle.sql that touches plain jobs is made here too.
create or replace function longshore.claim(
  p_worker int, p_limit int, p_these uuid[] default null, p_lanes int[] default null, p_from bigint default null,
  p_held_lanes int[] default null, p_held_slots smallint[] default null, p_held_key_slots smallint[] default null,
  out wait text, out refused text, out lease_tokens text, out ids text, out lanes text, out attempts text,
  out max_attempts text, out scores text, out created_at text, out payloads text, out alone text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in claim.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_rows tid[];
  v_claimed int;
  v_from bigint := coalesce(p_from, 0);
begin
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then
    wait := 'busy';
    return;
  end if;
  select array_agg(l.lane) into v_lanes
  from longshore.worker_lanes l
  where l.worker_id = p_worker and l.dead_at is null and l.concurrency_key = '';
  if p_these is null then
    v_rows := array(
      select j.ctid from longshore.jobs j
      where j.lane = v_lanes[1] and j.state = 'ready' and j.score >= v_from
      order by j.score, j.id
      limit p_limit
      for no key update skip locked);
  else
    v_rows := array(
      select j.ctid from longshore.jobs j
      where j.id = any (p_these) and j.state::text = 'ready' and j.lane = any (v_lanes)
      order by j.score, j.id
      for no key update skip locked);
  end if;
  select h.* into v_claimed, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
  from longshore.hand_over(p_worker, v_rows, null, null, v_lanes[1]) h;
  if v_claimed < cardinality(p_these) then
    select string_agg(concat_ws(' ', j.id, 'busy', j.lane, j.score, j.lease_token), ',') into refused
    from longshore.jobs j where j.id = any (p_these) and j.state::text = 'ready';
  end if;
end
$$;

create or replace function longshore.settle(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb
) returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '50ms'
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_tokens bigint[];
  v_linked uuid[];
  v_workflows bigint[];
  v_groups uuid[];
  v_ready uuid[];
begin
  if cardinality(p_ids) > 0 then
    begin
      select m.ids, m.tokens, m.linked, m.workflows, m.groups into v_ids, v_tokens, v_linked, v_workflows, v_groups
      from longshore.move_to_history(p_ids, 'succeeded', p_results, null, p_worker) m;
      if v_ids is distinct from p_ids or v_tokens is distinct from p_tokens then
        raise lock_not_available;
      end if;
      if v_linked is not null then
        v_ready := longshore.pass_on(
          v_linked, array_fill('succeeded'::longshore.job_state, array[cardinality(v_linked)]), v_workflows);
      end if;
    exception when lock_not_available or unique_violation then
      v_ids := null;
    end;
    if v_ids is null then
      return query
      select c.* from longshore.settle_contended(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.notify_job_waiters(v_ids);
      if v_linked is not null then
        return query
        select r.id, 'ready'::text, null::int, null::smallint, null::smallint from unnest(v_ready) as r(id)
        union all
        select g.id, 'group', null, null, null from longshore.nearly_ended(v_groups) as g(id);
      end if;
    end if;
  end if;

  if p_others is not null then
    return query select o.* from longshore.settle_unsuccessful(p_worker, p_others) o;
  end if;
end
$$;
