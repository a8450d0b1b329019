-- The leader's part of keeping limits quick beside a transaction that keeps a snapshot open: the limits that are used most move to their next era, see
-- slot_groups. Mostly nothing is to be done. An update finds room in the page of its row while Postgres can remove old versions there; only when it
-- cannot do rows move to other pages, and Postgres counts them.
--
-- p_seen: that count at the last look (null: the first look), `seen` is for the next one. p_waiting: limits that were to be renewed and were held, or
-- too many for one call; `waiting` are those for the next one. p_least: so many rows must have moved since.
-- public: worker, relay
create function longshore.renew_limits(
  p_seen bigint, p_waiting int[] default '{}', p_least int default 500, p_holder text default null, p_secret bytea default null,
  out seen bigint, out renewed int, out waiting int[]
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- Limits by their key, however many there are.
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  -- Limits, and rows, in one call: a few milliseconds.
  c_most constant int := 200;
  c_most_rows constant int := 1000;
  v_moved bigint := pg_stat_get_tuples_updated('longshore.slot_groups'::regclass)
    - pg_stat_get_tuples_hot_updated('longshore.slot_groups'::regclass);
  v_noted int[];
  v_now int[];
  v_renewed int[];
  v_rows int;
begin
  perform longshore.need_leader(p_holder, p_secret);
  with noted as (
    delete from longshore.limit_uses u returning u.limits
  )
  select array_agg(n.id order by n.times desc) into v_noted
  from (
    select l.id, count(*) as times from noted u cross join unnest(u.limits) as l(id) group by l.id order by 2 desc limit c_most
  ) n;
  waiting := coalesce(p_waiting, '{}');
  -- Where the server has lost its statistics they begin again.
  seen := least(p_seen, v_moved);
  if v_moved - seen >= p_least and v_noted is not null then
    -- The most used first, and no more rows than have moved: this is never more work than what made it necessary.
    waiting := waiting || array(
      select w.id
      from (
        select k.id, n.no, sum((select count(*) from longshore.spread_slots(k.capacity))) over (order by n.no) as rows
        from unnest(v_noted) with ordinality as n(id, no)
        cross join lateral (select k.id, k.capacity from longshore.limits k where k.id = n.id offset 0) k
        where n.id <> all (waiting)
      ) w
      where w.rows <= v_moved - seen
      order by w.no);
    seen := v_moved;
  end if;
  seen := coalesce(seen, v_moved);
  renewed := 0;
  waiting := waiting[1:c_most];
  if waiting = '{}' then
    return;
  end if;

  select coalesce(array_agg(w.id), '{}') into v_now
  from (
    select k.id, sum((select count(*) from longshore.spread_slots(k.capacity))) over (order by n.no) as rows
    from unnest(waiting) with ordinality as n(id, no)
    cross join lateral (select k.id, k.capacity from longshore.limits k where k.id = n.id offset 0) k
  ) w
  where w.rows <= c_most_rows;
  begin
    v_renewed := longshore.renew_slot_groups(v_now);
  exception when lock_not_available then
    v_renewed := '{}';
  end;
  renewed := cardinality(v_renewed);
  -- Those that were held go to the end.
  waiting := array(
    select w.id from unnest(waiting) with ordinality as w(id, no)
    where w.id <> all (v_renewed) and exists (select from longshore.limits k where k.id = w.id offset 0)
    order by w.id = any (v_now), w.no);
  -- Its own moves do not count.
  select coalesce(sum((select count(*) from longshore.spread_slots(k.capacity))), 0) into v_rows
  from longshore.limits k where k.id = any (v_renewed);
  seen := seen + v_rows;
end
$$;
