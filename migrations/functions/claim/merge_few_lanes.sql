-- Where the rows are of the best ready jobs of at most 16 lanes, from a score on and in order, without locks. As merge_lanes, for lanes without
-- limits: one branch for each lane lets Postgres merge their indexes as it reads them, so it reads as many jobs as it returns. Runs with the
-- settings of claim.
create function longshore.merge_few_lanes(p_lanes int[], p_from bigint, p_most int) returns tid[]
language plpgsql stable
as $$
begin
  return array(
    select c.ctid from (
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[1] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[2] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[3] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[4] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[5] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[6] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[7] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[8] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[9] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[10] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[11] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[12] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[13] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[14] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[15] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    union all
    (select j.ctid, j.score, j.id from longshore.jobs j
      where j.lane = p_lanes[16] and j.state = 'ready' and j.score >= p_from order by j.score, j.id)
    ) c
    order by c.score, c.id
    limit p_most);
end
$$;
