-- End runs. p_ids (ascending) with p_tokens are the jobs that succeeded; p_results maps ids to results where there
-- are any; p_others lists what ended otherwise: {id, token, outcome: failed | retry | released, error, delayMs}.
-- Each write is fenced by (worker, lease token). Waits for a lock no longer than its lock_timeout. Returns only what was
-- not settled: `busy` (another transaction locks the row: try again, alone) and `lost` (the lease is gone: nothing was
-- changed); and, as `held`, the slots of the ended runs, for the caller to free or to use again; as `ready`, jobs that may
-- run now because of it; as `group`, groups that may have ended: see close_groups. A job that was cancelled meanwhile ends
-- as cancelled, whatever its outcome.
create function longshore.settle(
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
  v_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_linked uuid[];
  v_workflows bigint[];
  v_groups uuid[];
  v_ready uuid[];
begin
  if cardinality(p_ids) > 0 then
    begin
      -- The common case in one statement: all of them are this worker's and no transaction holds them. One that does (a claim that
      -- read an older snapshot) lets go within milliseconds; otherwise settle_contended does it.
      select m.ids, m.tokens, m.lanes, m.slots, m.key_slots, m.linked, m.workflows, m.groups
      into v_ids, v_tokens, v_lanes, v_slots, v_key_slots, v_linked, v_workflows, v_groups
      from longshore.move_to_history(p_ids, 'succeeded', p_results, null, p_worker) m;
      /* point: moved */
      if v_ids is distinct from p_ids /* guard: own-token */ or v_tokens is distinct from p_tokens /* end own-token */ then
        raise lock_not_available;
      end if;
      if v_linked is not null then
        /* guard: pass-on */ v_ready := longshore.pass_on(
          v_linked, array_fill('succeeded'::longshore.job_state, array[cardinality(v_linked)]), v_workflows); /* end pass-on */
      end if;
    exception when lock_not_available or unique_violation then
      v_ids := null;
    end;
    if v_ids is null then
      return query
      select c.* from longshore.settle_contended(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.notify_job_waiters(v_ids);
      if /* guard: tell-slots */ v_lanes is not null /* end tell-slots */ then
        return query
        select null::uuid, 'held'::text, h.* from unnest(v_lanes, v_slots, v_key_slots) as h(lane, slot, key_slot);
      end if;
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
