-- Make a lane with a key known to claims again, at the place of its best job. Once too often does no harm: see lane_heads.
-- public: owner
create function longshore.repair_head(p_lane int, out is_done boolean, out said text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into longshore.lane_heads (parent, lane, score, job_id)
  select l.parent, l.id, best.score, best.id
  from longshore.lanes l
  cross join lateral (
    select j.score, j.id from longshore.jobs j where j.lane = l.id and j.state = 'ready' order by j.score, j.id limit 1
  ) best
  where l.id = p_lane and l.parent is not null;
  is_done := found;
  said := case when is_done then 'claims know the lane again' else 'the lane has no ready job any more' end;
  perform longshore.ring(p_lane, 1) where is_done;
end
$$;
