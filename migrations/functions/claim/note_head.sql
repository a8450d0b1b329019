-- A lane with a concurrency key has a ready job with this score and id (or better ones): see to it that claims find the lane. A row that says so
-- already is held, so that no claim takes it away before this transaction ends; claims pass over held rows.
create function longshore.note_head(p_lane int, p_score bigint, p_job uuid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parent int;
begin
  select l.parent into v_parent from longshore.lanes l where l.id = p_lane;
  if v_parent is null then
    return;
  end if;
  -- Above READ COMMITTED holding a row that has changed would be a serialization failure.
  if current_setting('transaction_isolation') = 'read committed' then
    perform from longshore.lane_heads h
    where h.lane = p_lane and (h.score, h.job_id) <= (p_score, p_job)
    limit 1
    /* guard: relied-on */ for key share skip locked /* end relied-on */;
    if found then
      return;
    end if;
  end if;
  insert into longshore.lane_heads (parent, lane, score, job_id) values (v_parent, p_lane, p_score, p_job);
end
$$;
