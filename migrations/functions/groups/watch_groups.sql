-- The watchdog: look at unfinished groups behind p_after, about p_jobs jobs of at most p_groups groups. A group has moved if its counts
-- or claims have changed since the last look. One that has not moved for as long as the settings say, without an excuse (see
-- why_group_is_idle), is stuck: that is stored, watchers are told, and, where the settings say so, it is cancelled.
-- p_watching_ms: how long the caller has watched; after an outage all groups get time to go on. p_between_ms: at most so long ago it looked at these groups the last
-- time. With very many groups that may be longer than the settings say: a group is stuck only if two looks have found it so.
-- Returns where to go on (null at the end), how many are stuck, and the one that was found or cancelled now, if any: the page
-- ends with it, since its end may be what another has waited for.
-- public: worker, relay
create function longshore.watch_groups(
  p_after uuid, p_groups int, p_jobs int, p_watching_ms bigint, p_holder text default null, p_secret bytea default null,
  p_between_ms bigint default 0, out last uuid, out stuck int, out report jsonb
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- For why_group_is_idle too: planning cost several times what running does.
set plan_cache_mode = force_generic_plan
as $$
declare
  v_settings record;
  v_group longshore.groups;
  v_found record;
  v_quiet_ms numeric;
  v_groups int := 0;
  v_jobs bigint := 0;
  v_moved uuid[] := '{}';
  v_seen text[] := '{}';
begin
  p_watching_ms := least(p_watching_ms, longshore.need_leader(p_holder, p_secret));
  p_groups := least(p_groups, 10000);
  p_jobs := least(p_jobs, 1000000);
  select s.watchdog_ms as ms, s.watchdog_cancels as cancels into v_settings from longshore.settings s;
  p_between_ms := least(greatest(p_between_ms, 0), 31536000000);
  stuck := 0;
  for v_group in
    select g.* from longshore.groups g where g.finished_at is null and g.id > p_after order by g.id limit p_groups
  loop
    -- Each claim has a larger token: a job that is tried again and again moves.
    select u.jobs + e.jobs as jobs, concat_ws(' ', u.waiting, u.scheduled, u.ready, u.running, u.tokens,
      e.jobs + v_group.succeeded + v_group.failed + v_group.cancelled + v_group.dependency_failed) as seen
    into v_found
    from (
      select count(*) as jobs, count(*) filter (where j.state = 'waiting') as waiting,
        count(*) filter (where j.state = 'scheduled') as scheduled, count(*) filter (where j.state = 'ready') as ready,
        count(*) filter (where j.state = 'running') as running, coalesce(sum(j.lease_token), 0) as tokens
      from longshore.jobs j where j.group_id = v_group.id
    ) u, (select count(*) as jobs from longshore.finished_jobs f where f.group_id = v_group.id) e;
    v_quiet_ms := extract(epoch from clock_timestamp() - v_group.seen_at) * 1000;
    -- What excuses it is asked for several times before it counts as stuck: an excuse may have ended just now.
    if v_found.seen is distinct from v_group.seen
      or (v_quiet_ms >= v_settings.ms /* guard: ask-early */ / 2 /* end ask-early */ and longshore.why_group_is_idle(v_group.id) is not null)
    then
      v_moved := v_moved || v_group.id;
      v_seen := v_seen || v_found.seen;
    elsif v_quiet_ms >= v_settings.ms /* guard: looked-before */ and v_quiet_ms >= p_between_ms * 1.5 /* end looked-before */
      and p_watching_ms >= least(v_settings.ms / 2, 60000) then
      stuck := stuck + 1;
      if v_group.stuck is null or (v_settings.cancels and v_group.cancelled_at is null) then
        report := longshore.report_stuck(v_group, v_settings.cancels);
      end if;
    end if;
    v_groups := v_groups + 1;
    v_jobs := v_jobs + v_found.jobs;
    if v_groups = p_groups or v_jobs >= p_jobs or report is not null then
      last := v_group.id;
      exit;
    end if;
  end loop;
  -- At the end and without waiting: transactions that close a group or add to it do not block this, nor does this block them for long.
  update longshore.groups g set seen = m.seen, seen_at = clock_timestamp(), stuck = null
  from unnest(v_moved, v_seen) as m(id, seen)
  where g.id = m.id and g.id in (
    select o.id from longshore.groups o
    where o.id = any (v_moved) and o.finished_at is null order by o.id for no key update skip locked);
end
$$;
