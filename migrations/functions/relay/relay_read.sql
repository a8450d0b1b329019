-- What the relay does next, in one round trip: delete the outbox rows it has applied (p_done; by then Redis was as far as
-- p_seqs says for p_queues), and read the next ones together with the present state of what they name. `is_leader` false: another
-- process leads, and nothing was done.
--
-- p_from: fast polls look behind rows that were seen; a full look has to follow now and then, for what commits late.
-- p_lanes, p_bounds: jobs of these lanes that stand behind these scores are not wanted: Redis has no room for them.
-- p_jobs, p_limits: to be read as if a row named them.
-- public: relay
create function longshore.relay_read(
  p_holder text, p_done bigint[], p_queues text[], p_seqs bigint[], p_from bigint, p_most int,
  p_lanes int[], p_bounds bigint[], p_jobs uuid[] default '{}', p_limits int[] default '{}',
  p_secret bytea default null
) returns table (
  is_leader boolean, rows text, oldest_ms double precision,
  ready text, -- id lane score token
  gone text,
  limits text, -- id free; id alone where there is no such limit any more
  changed_lanes text,
  dead_workers text,
  has_new_workers boolean
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_rows bigint[];
  v_jobs uuid[];
  v_limits int[];
  v_lanes int[];
  v_workers int[];
begin
  is_leader := exists (
    select from longshore.leader l where l.holder = p_holder and longshore.fits_secret(l.secret, p_secret)
      and l.expires_at > clock_timestamp());
  /* guard: only-leader */ if not is_leader then
    return next;
    return;
  end if; /* end only-leader */
  if p_done <> '{}' then
    /* point: before-delete */
    delete from longshore.outbox o where /* guard: exact-rows */ o.id = any (p_done) /* end exact-rows */;
    update longshore.relayed r set seq = greatest(r.seq, d.seq)
    from unnest(p_queues, p_seqs) as d(queue, seq) where r.queue = d.queue and r.seq < d.seq;
  end if;
  with batch as materialized (
    select o.* from longshore.outbox o where o.id > p_from and o.id <> all (p_done) order by o.id limit p_most
  )
  select coalesce(array_agg(b.id), '{}'), extract(epoch from clock_timestamp() - min(b.created_at)) * 1000,
    array(
      select j.id from batch b cross join unnest(b.jobs) as j(id)
      where not coalesce(b.score > p_bounds[array_position(p_lanes, b.lane)], false)
      union select unnest(p_jobs)
    ),
    array(select k.id from batch b cross join unnest(b.limits) as k(id) union select unnest(p_limits)),
    array(select distinct l.id from batch b cross join unnest(b.lanes) as l(id)),
    array(select distinct w.id from batch b cross join unnest(b.workers) as w(id))
  into v_rows, oldest_ms, v_jobs, v_limits, v_lanes, v_workers
  from batch b;

  rows := array_to_string(v_rows, ',');
  if v_jobs <> '{}' then
    select string_agg(concat_ws(' ', j.id, j.lane, j.score, j.lease_token), ',') filter (where j.state::text = 'ready'),
      string_agg(g.id::text, ',') filter (where j.id is null or j.state::text <> 'ready')
    into ready, gone
    from unnest(v_jobs) as g(id)
    left join lateral (
      select j.id, j.lane, j.score, j.lease_token, j.state from longshore.jobs j where j.id = g.id offset 0
    ) j on true;
  end if;
  if v_limits <> '{}' then
    select string_agg(concat_ws(' ', g.id, case when k.id is not null then greatest(0, k.capacity - coalesce(s.used, 0)) end), ',') into limits
    from unnest(v_limits) as g(id)
    left join lateral (
      select k.id, k.capacity from longshore.limits k where k.id = g.id and k.capacity is not null offset 0
    ) k on true
    left join lateral (select sum(g.used) as used from longshore.slot_groups g where g.limit_id = k.id
        and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)) s on true;
  end if;
  changed_lanes := array_to_string(v_lanes, ',');
  if v_workers <> '{}' then
    select string_agg(g.id::text, ',') filter (where w.id is null), bool_or(w.id is not null)
    into dead_workers, has_new_workers
    from unnest(v_workers) as g(id)
    left join longshore.workers w on w.id = g.id and w.dead_at is null;
  end if;
  return next;
end
$$;
