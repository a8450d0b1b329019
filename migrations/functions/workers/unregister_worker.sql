-- A worker leaves. Its row goes, unless jobs still run under it: then it stays until its lease runs out, and they are
-- rescued. Rescue finds jobs by the rows of their workers: a job without one would run for ever.
-- public: worker
create function longshore.unregister_worker(p_worker int, p_secret bytea default null) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  -- A claim whose reply was lost may still be under way: it holds this until its commit.
  /* guard: worker-lock */ if not pg_try_advisory_xact_lock(hashtext('longshore.worker'), p_worker) then
    return false;
  end if; /* end worker-lock */
  with gone as (
    delete from longshore.workers w
    where w.id = p_worker
      /* guard: no-job-left */ and not exists (
        select from longshore.jobs j where j.worker_id = p_worker and j.state = 'running' offset 0) /* end no-job-left */
    returning w.id, w.secret
  )
  insert into longshore.past_workers (id, secret) select g.id, g.secret from gone g;
  if not found then
    return false;
  end if;
  /* guard: tell-relay */ perform longshore.note_changes(p_workers => array[p_worker]); /* end tell-relay */
  return true;
end
$$;
