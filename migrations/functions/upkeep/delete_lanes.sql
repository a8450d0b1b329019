-- Of these lanes, delete those that have been unused since before p_before, and for so long that no finished job of theirs is kept any more. Does not
-- wait: one that a transaction relies on stays for the next round. Returns how many. The caller is the only one who marks and deletes lanes.
create function longshore.delete_lanes(p_lanes int[], p_before timestamptz) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_oldest date := longshore.oldest_history();
  v_days int;
  v_lanes int[];
begin
  select s.retention_days into v_days from longshore.settings s
  where /* guard: longer-kept */ s.history_until < v_oldest /* end longer-kept */;
  if not found then
    return 0;
  end if;
  v_lanes := array(
    select l.id from longshore.lanes l
    where l.id = any (p_lanes) and l.unused_since is not null /* guard: whole-round */ and l.unused_since < p_before /* end whole-round */
      -- Its last job ended at most a day after the mark.
      /* guard: history-gone */ and longshore.kept_until((l.unused_since at time zone 'utc')::date + 1, v_days) < v_oldest /* end history-gone */
    /* guard: relied-on */ for update skip locked /* end relied-on */);
  if v_lanes = '{}' then
    return 0;
  end if;
  /* point: held */
  -- Later statements: they see what the last transaction that relied on one of them has done.
  v_lanes := array(
    select g.id from unnest(v_lanes) as g(id)
    where /* guard: not-used */ not exists (select from longshore.lane_uses u where u.lane = g.id offset 0) and /* end not-used */
      /* guard: no-keys */ not exists (select from longshore.lanes c where c.parent = g.id offset 0) and /* end no-keys */ true);
  delete from longshore.lane_heads h
  where h.id = any (array(select o.id from longshore.lane_heads o where o.lane = any (v_lanes) for update skip locked));
  delete from longshore.limit_waiters w
  where w.ctid = any (array(select o.ctid from longshore.limit_waiters o where o.lane = any (v_lanes) for update skip locked));
  v_lanes := array(
    select g.id from unnest(v_lanes) as g(id)
    where /* guard: no-head-left */ not exists (select from longshore.lane_heads h where h.lane = g.id offset 0) /* end no-head-left */);
  delete from longshore.lanes l where l.id = any (v_lanes);
  /* guard: tell-relay */ perform longshore.note_changes(p_lanes => v_lanes) where v_lanes <> '{}'; /* end tell-relay */
  return cardinality(v_lanes);
end
$$;
