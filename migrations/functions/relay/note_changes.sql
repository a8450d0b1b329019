-- This transaction has changed what Redis holds: write an outbox row for the relay. Does nothing in direct mode.
-- p_lane, p_score: where all of p_jobs stand, if that is one place. p_hinted: the caller tells Redis itself after the commit.
-- public: owner
create function longshore.note_changes(
  p_jobs uuid[] default '{}', p_lane int default null, p_score bigint default null, p_limits int[] default '{}',
  p_lanes int[] default '{}', p_workers int[] default '{}', p_hinted boolean default false
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if (select s.dispatch from longshore.settings s) = 'redis' and (
    cardinality(p_jobs) > 0 or cardinality(p_limits) > 0 or cardinality(p_lanes) > 0 or cardinality(p_workers) > 0)
  then
    insert into longshore.outbox (jobs, lane, score, limits, lanes, workers, hinted)
    values (coalesce(p_jobs, '{}'), p_lane, p_score, coalesce(p_limits, '{}'), coalesce(p_lanes, '{}'),
      coalesce(p_workers, '{}'), p_hinted);
  end if;
end
$$;
