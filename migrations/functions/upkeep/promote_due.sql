-- Make scheduled jobs ready whose time has come, at most p_limit of them. Returns how many, and the milliseconds
-- until the next one is due (null: none is scheduled), by the database's clock.
-- public: worker, relay
create function longshore.promote_due(p_limit int, p_holder text default null, p_secret bytea default null)
returns table (promoted int, next_due_ms double precision)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- As in claim: the index in its own order is the only sensible way, whatever the statistics say.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
declare
  v_now_ms bigint := floor(extract(epoch from clock_timestamp()) * 1000);
  v_lane record;
  v_ids uuid[] := '{}';
begin
  perform longshore.need_leader(p_holder, p_secret);
  p_limit := least(p_limit, 10000);
  promoted := 0;
  for v_lane in
    with due as materialized (
      select j.ctid from longshore.jobs j
      where /* guard: only-scheduled */ j.state = 'scheduled' /* end only-scheduled */
        and /* guard: only-due */ longshore.run_at_ms_of(j.score) <= v_now_ms /* end only-due */
      order by longshore.run_at_ms_of(j.score)
      limit p_limit
      for no key update skip locked
    ), moved as (
      update longshore.jobs j set state = 'ready'
      where j.ctid = any (array(select d.ctid from due d))
      returning j.lane, j.score, j.id
    )
    select m.lane, min(m.score) as score, array_agg(m.id order by m.score, m.id) as ids
    from moved m group by m.lane order by m.lane
  loop
    promoted := promoted + cardinality(v_lane.ids);
    v_ids := v_ids || v_lane.ids;
    /* guard: wake-worker */ perform longshore.announce_ready(
      v_lane.lane, v_lane.score, v_lane.ids[1], cardinality(v_lane.ids)); /* end wake-worker */
  end loop;
  /* guard: tell-relay */ perform longshore.note_changes(v_ids) where v_ids <> '{}'; /* end tell-relay */
  select longshore.run_at_ms_of(j.score) - extract(epoch from clock_timestamp()) * 1000 into next_due_ms
  from longshore.jobs j where j.state = 'scheduled'
  order by longshore.run_at_ms_of(j.score) limit 1;
  return next;
end
$$;
