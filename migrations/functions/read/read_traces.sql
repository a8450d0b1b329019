-- What the spans of running jobs need, by id, as JSON: [since when it was to run (ms), when it was claimed (ms), its queue, its trace
-- context].
-- Called only by workers that trace. A job is to run from its run time on, or from when it was made. Where a later time is
-- not stored (when its last parent ended, when it was rescued), the earlier one stands.
create function longshore.read_traces(p_ids uuid[]) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
-- By the primary key, whatever the statistics say.
set enable_seqscan = off
as $$
begin
  return (
    select json_object_agg(j.id, json_build_array(
      round(least(greatest(extract(epoch from j.created_at) * 1000, longshore.run_at_ms_of(j.score)), s.started_ms), 3),
      round(s.started_ms, 3), l.queue, j.trace))
    from longshore.jobs j
    cross join lateral (select extract(epoch from j.started_at) * 1000 as started_ms) s
    left join longshore.lanes l on l.id = j.lane
    where j.id = any (p_ids));
end
$$;
