-- Lanes with keys, below p_lanes, that have ready jobs, behind a place in the order and best first: about p_most of them, and p_left,
-- which an earlier turn of the claim has read and not finished. (last_score, last_id): a lane that was not read has no better job.
create function longshore.read_key_lanes(
  p_lanes int[], p_after_score bigint, p_after_id uuid, p_most int, p_left int[],
  out lanes int[], out scores bigint[], out has_more boolean, out last_score bigint, out last_id uuid
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  with heads as materialized (
    -- With ties: a job that was moved to another lane may be known in both.
    select open.lane, open.score, open.job_id
    from unnest(p_lanes) as p(lane)
    cross join lateral (
      select h.lane, h.score, h.job_id from longshore.lane_heads h
      where h.parent = p.lane and h.closed_by is null and (h.score, h.job_id) > (p_after_score, p_after_id)
      order by h.score, h.job_id
      fetch first (p_most) rows with ties
    ) open
    order by open.score, open.job_id
    fetch first (p_most) rows with ties
  ), last as (
    select h.score, h.job_id from heads h order by h.score desc, h.job_id desc limit 1
  )
  select coalesce(array_agg(h.lane), '{}'), coalesce(array_agg(h.score), '{}'), coalesce(sum(h.rows), 0) >= p_most,
    (select l.score from last l), (select l.job_id from last l)
  into lanes, scores, has_more, last_score, last_id
  from (
    select h.lane, min(h.score) as score, sum(h.rows) as rows
    from (
      select h.lane, h.score, 1 as rows from heads h
      union all
      select l.lane, -1, 0 from unnest(p_left) as l(lane)
    ) h
    group by h.lane
  ) h;
  if not has_more then
    last_score := 9223372036854775807;
    last_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  end if;
end
$$;
