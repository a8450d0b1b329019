-- A claim has looked at these lanes with keys: bring what is known of them up to date. A lane without ready jobs goes from
-- the list, one whose limit was found full (p_closed) is closed, the others stand at their best job's place.
create function longshore.tidy_heads(p_lanes int[], p_closed int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- As in lock_jobs.
set lock_timeout = '10ms'
as $$
declare
  v_held bigint[];
begin
  -- Rows that somebody relies on who has not committed stay as they are.
  select array_agg(h.id) into v_held from (
    select h.id from longshore.lane_heads h
    where h.lane = any (p_lanes) and h.closed_by is null
    /* guard: relied-on */ for update skip locked /* end relied-on */
  ) h;
  if v_held is null then
    return;
  end if;
  -- A later statement: it sees the jobs of everybody who held one of these rows before.
  with found as materialized (
    select h.id, row_number() over (partition by h.lane order by h.id) as no, best.score, best.id as job_id, k.id as closed_by
    from unnest(v_held) as g(id)
    cross join lateral (select h.id, h.lane from longshore.lane_heads h where h.id = g.id offset 0) h
    join longshore.lanes l on l.id = h.lane
    left join longshore.limits k on k.task = l.task and k.key = l.concurrency_key and k.id = any (p_closed)
    left join lateral (
      select j.score, j.id from longshore.jobs j
      where j.lane = h.lane and j.state = 'ready' order by j.score, j.id limit 1
    ) best on true
  ), gone as (
    delete from longshore.lane_heads h
    where h.id = any (array(select f.id from found f where f.score is null or f.no > 1))
  )
  update longshore.lane_heads h set score = f.score, job_id = f.job_id, closed_by = f.closed_by
  from (
    select f.*, r.row from found f
    cross join lateral (select h.ctid as row from longshore.lane_heads h where h.id = f.id offset 0) r
    where f.no = 1 and f.score is not null
  ) f
  where h.ctid = f.row
    and (h.score, h.job_id, coalesce(h.closed_by, 0)) is distinct from (f.score, f.job_id, coalesce(f.closed_by, 0));
end
$$;
