-- The work of cancel_group, without asking whose group it is: for the watchdog too. Answers and waits as that does.
create function longshore.cancel_any_group(p_group uuid) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_group longshore.groups;
  v_ready uuid[];
  v_ended uuid[];
  v_workflows bigint[];
  v_workers int[];
begin
  -- No transaction adds jobs while this is locked.
  select * into v_group from longshore.groups g where g.id = p_group /* guard: group-lock */ for update /* end group-lock */;
  if not found then
    return 'unknown';
  elsif v_group.finished_at is not null then
    return case when v_group.end_state = 'cancelled' then 'cancelled' else 'finished' end;
  end if;
  perform longshore.need_read_committed('cancel a group');
  /* point: group-held */
  -- A transaction that cancels one of its jobs may lock that and wait for another, see pass_on_patiently. The last try waits longer.
  for v_try in 1 .. 5 loop
    begin
      perform set_config('lock_timeout', case when v_try < 5 then '100ms' else '1s' end, true);
      -- First the jobs that a worker may end, then those that wait: settle locks in the same order.
      perform from longshore.jobs j where j.group_id = p_group and j.state <> 'waiting' order by j.id
      /* guard: job-locks */ for update /* end job-locks */;
      perform from longshore.jobs j where j.group_id = p_group order by j.id /* guard: job-locks */ for update /* end job-locks */;
      exit;
    exception when lock_not_available then
      if v_try = 5 then
        raise;
      end if;
    end;
    perform pg_sleep(random() * 0.02);
  end loop;
  perform set_config('lock_timeout', '1s', true);

  with running as (
    update longshore.jobs j set is_cancelled = true
    where j.group_id = p_group and j.state = 'running' returning j.worker_id
  )
  select array_agg(distinct r.worker_id) into v_workers from running r;
  /* point: running-marked */
  select array_agg(j.id), array_agg(j.id) filter (where j.state = 'ready'),
    coalesce(array_agg(j.workflow) filter (where j.has_turn), '{}')
  into v_ended, v_ready, v_workflows
  from longshore.jobs j where j.group_id = p_group and j.state <> 'running';
  perform longshore.move_to_history(v_ended, 'cancelled') where v_ended is not null;
  if v_ended is null and v_workers is null then
    -- Its last job has ended, but the end of the group is not written yet.
    perform longshore.close_groups(array[p_group]);
    return (select case when g.end_state = 'cancelled' then 'cancelled' else 'finished' end from longshore.groups g where g.id = p_group);
  end if;
  update longshore.groups g set cancelled_at = coalesce(g.cancelled_at, clock_timestamp()) where g.id = p_group;
  perform pg_notify('longshore.worker_' || w.id, 'cancel') from unnest(v_workers) as w(id);
  perform longshore.notify_job_waiters(v_ended);
  for v_at in 1 .. coalesce(cardinality(v_ready), 0) by 1000 loop
    /* guard: tell-relay */ perform longshore.note_changes(v_ready[v_at : v_at + 999]); /* end tell-relay */
  end loop;
  perform longshore.pass_on_patiently('{}', '{}', v_workflows, '1 second') where v_workflows <> '{}';
  if v_workers is null then
    perform longshore.close_groups(array[p_group]);
    return 'cancelled';
  end if;
  return 'cancelling';
exception when lock_not_available then
  raise exception 'longshore: somebody holds group % or one of its jobs for longer than a second', p_group
    using errcode = 'lock_not_available', hint = 'An open transaction adds to it or has changed it: try again when that has ended.';
end
$$;
