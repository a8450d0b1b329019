-- After jobs were inserted whose ids may be known: a job that ended while the insert waited for it is history by now, and must not run
-- again. Deletes such jobs, in a statement that sees the end, and returns the others.
create function longshore.drop_ended(p_ids uuid[]) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  /* guard: look-again */ delete from longshore.jobs j
  where j.id = any (p_ids) and exists (select from longshore.finished_jobs f where f.id = j.id offset 0); /* end look-again */
  return array(select j.id from longshore.jobs j where j.id = any (p_ids));
end
$$;
