-- The leader's part of forgetting lanes that are not used any more: the next short piece of work. `is_idle`: nothing is to be done before the next call.
--
-- A round:
-- 1. marking: lanes without a ready job are marked as unused, and lanes that were marked long ago are deleted, see delete_lanes;
-- 2. waiting: until every transaction has ended that may not have seen a mark. Those that see one note that they use the lane, see use_lane;
-- 3. clearing: the marks of lanes with jobs of any state are taken away. `jobs` is read by its key, so no index on its lanes is needed;
-- 4. names: see forget_names.
-- A lane that is marked after that has no jobs, and each transaction that gives it one notes so in lane_uses, from where each call takes the mark away.
--
-- A round that takes longer than a day begins again, and marks anew: a lane is unused from the end of its round on, which so is at most a day behind its mark.
-- Only one transaction at a time gets past the first lock.
-- public: worker, relay
create function longshore.forget_lanes(
  p_holder text default null, p_secret bytea default null, p_every interval default '6 hours', p_page int default 1000,
  out step text, out marked int, out cleared int, out deleted int, out is_idle boolean
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_at longshore.forgetting;
  v_lanes int[];
  v_last uuid;
begin
  perform longshore.need_leader(p_holder, p_secret);
  marked := 0;
  cleared := 0;
  deleted := 0;
  is_idle := true;
  select * into v_at from longshore.forgetting f
  where f.step <> 'resting' or f.next_at <= now() or exists (select from longshore.lane_uses)
  /* guard: one-at-a-time */ for update skip locked /* end one-at-a-time */;
  if not found then
    step := 'resting';
    return;
  end if;
  /* point: held */

  -- In one statement: a row that is committed after it was read stays for the next call.
  with noted as (
    delete from longshore.lane_uses u where u.ctid = any (array(select o.ctid from longshore.lane_uses o limit 2 * p_page)) returning u.lane
  )
  select coalesce(array_agg(distinct n.lane), '{}') into v_lanes from noted n;
  if v_lanes <> '{}' then
    is_idle := false;
    /* guard: clear-used */ update longshore.lanes l set unused_since = null
    where l.id = any (v_lanes) and l.unused_since is not null; /* end clear-used */
    get diagnostics cleared = row_count;
  end if;

  if v_at.step <> 'resting' /* guard: within-a-day */ and v_at.began_at < now() - interval '1 day' /* end within-a-day */ then
    v_at.void_from := least(v_at.void_from, v_at.began_at);
    v_at.step := 'resting';
    v_at.next_at := now();
  end if;
  if v_at.step = 'resting' and v_at.next_at <= now() then
    v_at.step := 'marking';
    v_at.began_at := now();
    v_at.lane := 0;
    v_at.marked := 0;
  end if;

  case v_at.step
    when 'marking' then
      is_idle := false;
      v_lanes := array(select l.id from longshore.lanes l where l.id > v_at.lane order by l.id limit p_page);
      deleted := longshore.delete_lanes(v_lanes, least(v_at.began_at, v_at.void_from));
      update longshore.lanes l set unused_since = now()
      where l.id = any (v_lanes) and (/* guard: mark-anew */ l.unused_since >= v_at.void_from or /* end mark-anew */
        l.unused_since is null and not exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0));
      get diagnostics marked = row_count;
      v_at.marked := v_at.marked + marked;
      v_at.lane := coalesce(v_lanes[cardinality(v_lanes)], 0);
      if cardinality(v_lanes) < p_page then
        v_at.step := case when v_at.marked > 0 then 'waiting' else 'names' end;
        v_at.wait_for := null;
      end if;
    when 'waiting' then
      if v_at.wait_for is null then
        -- Later than the transactions that set marks: one with a higher number looks for its lane after all marks.
        v_at.wait_for := pg_current_xact_id();
        is_idle := false;
      elsif /* guard: wait-for-all */ pg_snapshot_xmin(pg_current_snapshot()) >= v_at.wait_for /* end wait-for-all */ then
        v_at.step := 'clearing';
        v_at.job := '00000000-0000-0000-0000-000000000000';
        is_idle := false;
      end if;
    when 'clearing' then
      is_idle := false;
      select j.id into v_last from longshore.jobs j where j.id > v_at.job order by j.id offset 2 * p_page - 1 limit 1;
      v_lanes := array(
        select distinct j.lane from longshore.jobs j
        where j.id > v_at.job and j.id <= coalesce(v_last, 'ffffffff-ffff-ffff-ffff-ffffffffffff'));
      /* guard: clear-busy */ update longshore.lanes l set unused_since = null
      where l.id = any (v_lanes) and l.unused_since is not null; /* end clear-busy */
      get diagnostics marked = row_count;
      cleared := cleared + marked;
      marked := 0;
      v_at.job := v_last;
      if v_last is null then
        v_at.step := 'names';
        v_at.job := '00000000-0000-0000-0000-000000000000';
      end if;
    when 'names' then
      is_idle := false;
      perform longshore.forget_names();
      v_at.step := 'resting';
      v_at.next_at := now() + p_every;
      v_at.void_from := null;
    else
      null;
  end case;
  update longshore.forgetting f
  set step = v_at.step, began_at = v_at.began_at, next_at = v_at.next_at, lane = v_at.lane, job = v_at.job, marked = v_at.marked,
    wait_for = v_at.wait_for, void_from = v_at.void_from;
  step := v_at.step;
end
$$;
