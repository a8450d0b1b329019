-- Of the lanes for these jobs, marked as unused or not, one that stays as long as this transaction, and whose mark the leader takes
-- away afterwards; null if there is none. Does not wait: a lane that the leader is just deleting is passed over. Above READ COMMITTED a lane that
-- was deleted after the snapshot was taken is a serialization failure.
create function longshore.use_lane(p_queue text, p_task text, p_tag text, p_constraint_tag text, p_key text) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  v_lanes int[];
  v_lane int;
begin
  if p_key = '' then
    v_lanes := array(
      select l.id from longshore.lanes l
      where l.task = p_task and l.tag = p_tag and l.constraint_tag = p_constraint_tag and l.queue = p_queue
        and l.concurrency_key = '');
  else
    v_lanes := array(
      select l.id from longshore.lanes l
      where l.task = p_task and l.tag = p_tag and l.constraint_tag = p_constraint_tag and l.queue = p_queue
        and l.concurrency_key = p_key and l.concurrency_key <> '');
  end if;
  /* point: found */
  if v_lanes = '{}' then
    return null;
  end if;
  -- Another transaction has noted that it is used: nothing deletes it before the leader has taken the mark away, and a new mark counts
  -- only when this transaction has ended. Not known where the snapshot may be old.
  if current_setting('transaction_isolation') = 'read committed' then
    select min(u.lane) into v_lane from longshore.lane_uses u where u.lane = any (v_lanes);
    if v_lane is not null then
      return v_lane;
    end if;
  end if;
  select l.id into v_lane
  from longshore.lanes l where l.id = any (v_lanes)
  order by l.unused_since is not null, l.id
  limit 1
  /* guard: relied-on */ for key share skip locked /* end relied-on */;
  /* point: held */
  if v_lane is not null then
    /* guard: note-use */ insert into longshore.lane_uses (lane) values (v_lane); /* end note-use */
  end if;
  return v_lane;
end
$$;
