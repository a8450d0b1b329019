-- What settle answers for a job that end_linked was asked to end: p_ready is what that returned.
create function longshore.settle_answer(p_job longshore.jobs, p_ready uuid[])
returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ready is null then
    return query select p_job.id, 'busy'::text, null::int, null::smallint, null::smallint;
    return;
  end if;
  return query
  select null::uuid, 'held'::text, p_job.lane, p_job.slot, p_job.key_slot
  where /* guard: tell-slots */ (p_job.slot is not null or p_job.key_slot is not null) /* end tell-slots */
  union all
  select r.id, 'ready', null, null, null from unnest(p_ready) as r(id)
  union all
  select g.id, 'group', null, null, null from longshore.nearly_ended(array_remove(array[p_job.group_id], null)) as g(id);
end
$$;
