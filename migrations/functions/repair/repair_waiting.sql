-- Recompute from edges, parents and workflow what an unfinished job waits for, and let it wait, run or end accordingly. Needs
-- nothing but what is there, so it may be called at any time, for any job, and again. Answers what was done; not is_done: why
-- nothing can be, or nothing needs to be.
--
-- Locks as pass_on does, the workflow and then the jobs that wait, and reads what it relies on afterwards: a transaction that ends a
-- parent, or passes the turn, needs the same rows before its commit. Gives up after waiting for a lock for a second: call it again.
-- public: owner
create function longshore.repair_waiting(p_job uuid, out is_done boolean, out said text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '1s'
as $$
declare
  v_job longshore.jobs;
  v_workflow longshore.workflows;
  v_first uuid;
  v_holder longshore.jobs;
  v_doom longshore.job_state;
  v_turn boolean;
  v_pending int;
  v_state longshore.job_state;
  v_now_ms bigint := floor(extract(epoch from clock_timestamp()) * 1000);
begin
  perform longshore.need_read_committed('repair a job');
  is_done := false;
  said := '';
  select * into v_job from longshore.jobs j where j.id = p_job;
  if v_job.workflow is not null then
    -- Its key is lost: an enqueue with that key makes a new workflow. The jobs that are left keep their order.
    insert into longshore.workflows (id, key, next_seq) overriding system value
    select v_job.workflow, 'recovered ' || v_job.workflow, max(j.workflow_seq) + 1
    from longshore.jobs j where j.workflow = v_job.workflow
    on conflict do nothing;
    if found then
      said := format('its workflow goes on as "recovered %s"; ', v_job.workflow);
      is_done := true;
    end if;
    select * into v_workflow from longshore.workflows w
    where w.id = v_job.workflow /* guard: workflow-lock */ for update /* end workflow-lock */;
    select j.id into v_first from longshore.jobs j where j.workflow = v_job.workflow order by j.workflow_seq limit 1;
    select * into v_holder from longshore.jobs j where j.workflow = v_job.workflow and j.has_turn;
  end if;
  /* guard: job-locks */ perform from longshore.jobs j
  where j.id in (p_job, v_first, v_holder.id) order by j.id for update; /* end job-locks */
  -- After the locks: as it is now.
  select * into v_job from longshore.jobs j where j.id = p_job;
  if not found then
    said := said || 'it has ended meanwhile';
    return;
  elsif v_job.state = 'running' then
    said := said || 'it runs already: let it end, or cancel it';
    return;
  end if;

  if v_job.workflow is not null then
    if v_holder.id <> v_first and not exists (select from longshore.jobs j where j.id = v_holder.id and j.state = 'running') then
      update longshore.jobs j
      set has_turn = false, pending = coalesce(j.pending, 0) + 1, state = 'waiting' where j.id = v_holder.id and j.has_turn;
      perform longshore.note_changes(array[v_holder.id]) where v_holder.state = 'ready';
      is_done := true;
      said := said || format('the turn was taken from job %s; ', v_holder.id);
      v_holder.id := null;
    elsif v_holder.id <> v_first and v_job.id = v_first then
      said := said || format('job %s runs out of turn: the turn passes on when that has ended', v_holder.id);
      return;
    end if;
    v_turn := v_job.id = v_first and (v_workflow.halted_by is null or v_job.has_turn);
  end if;

  select max(longshore.doom_of(e.policy)) into v_doom
  from longshore.edges e
  cross join lateral (
    select f.state from longshore.finished_jobs f where f.id = e.parent order by f.finished_at desc limit 1
  ) p
  where e.child = p_job and p.state <> 'succeeded'
    and not exists (select from longshore.jobs o where o.id = e.parent offset 0);
  if v_doom is not null then
    perform longshore.pass_on('{}', '{}', p_doomed => array[p_job], p_doomed_states => array[v_doom]);
    perform longshore.note_changes(array[p_job]) where v_job.state = 'ready';
    is_done := true;
    said := said || format('it ended as %s, as a job that it was to run after had', v_doom);
  else
    select count(*) + case when not v_turn then 1 else 0 end into v_pending
    from longshore.edges e
    where e.child = p_job and exists (select from longshore.jobs p where p.id = e.parent offset 0);
    v_state := case
      when v_pending > 0 then 'waiting'
      when v_job.state <> 'waiting' then v_job.state
      else longshore.state_by_time(longshore.run_at_ms_of(v_job.score) - v_now_ms)
    end;
    update longshore.jobs j
    set pending = nullif(v_pending, 0), has_turn = v_turn, state = v_state
    where j.id = p_job
      and (j.pending, j.has_turn, j.state) is distinct from (nullif(v_pending, 0), v_turn, v_state);
    if found then
      is_done := true;
      said := said || format('it is %s and waits for %s', v_state, v_pending);
      if v_state = 'ready' then
        perform longshore.announce_ready(v_job.lane, v_job.score, v_job.id, 1);
      elsif v_state = 'scheduled' then
        perform pg_notify('longshore.due', '');
      end if;
      perform longshore.note_changes(array[p_job]) where 'ready' in (v_state, v_job.state);
    elsif not is_done then
      said := 'it waits for what it should';
    else
      said := rtrim(said, '; ');
    end if;
  end if;
  -- The first job gets the turn if it was taken from this job, or if no job had it.
  if v_first <> p_job and v_holder.id is null then
    perform longshore.repair_waiting(v_first);
  end if;
end
$$;
