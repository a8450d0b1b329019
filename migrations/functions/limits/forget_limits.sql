-- The leader's part of forgetting limits that are not used any more: those of concurrency keys, and those that were removed. A page of limits in each call;
-- how far it is stands in limit_looks. A limit is forgotten, with its slot groups, when no slot of it is used, no job of its key is ready, and no
-- transaction has changed it since the beginning of the pass before: for p_idle_ms at least. A claim that meets the key again makes the limit anew, with
-- another id (make_key_limits). `is_done`: the pass is at its end, or the next one is not due yet.
--
-- What is not used costs no write until it is forgotten: that a row is old is told from its xmin. How old does not matter for what must hold, which rests on
-- locks: a change of limits waits for this call, or this one for it. It holds all slot groups of a limit, or passes it over. Nothing runs under a limit of
-- which no slot is used, and a claim that has read the limit's id finds no slots of it afterwards: it answers `busy` and looks again.
--
-- What a person sets for a key is to stay: there is no such limit yet. It would be a condition beside the first one of v_ids.
--
-- The relay: an outbox row names the limits that are gone, as it names those that have changed; there is no row of them in `limits` any more. What
-- Redis holds of such a limit is to be forgotten, and lanes that it knows with the limit's id are to be described again when they get a job.
-- public: worker, relay
create function longshore.forget_limits(
  p_idle_ms bigint default 3600000, p_holder text default null, p_secret bytea default null, out forgotten int, out is_done boolean
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '200ms'
-- A page of limits, and of each its slot groups and lanes by their keys, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  c_page constant int := 500;
  v_look longshore.limit_looks;
  v_now bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  -- Of a row that has not been changed since: so many transactions have begun.
  v_age bigint;
  v_page int[];
  v_ids int[];
  v_held int[];
begin
  perform longshore.need_leader(p_holder, p_secret);
  forgotten := 0;
  is_done := true;
  select * into v_look from longshore.limit_looks l for update skip locked;
  if v_look.done_to is null then
    if not found or v_look.marked_at > clock_timestamp() - p_idle_ms * interval '1 millisecond' then
      return;
    end if;
    update longshore.limit_looks l
    set idle_since = l.marked, marked = v_now::text::xid8, marked_at = clock_timestamp(),
      -- A mark above what there has been is of another server, from which this database was restored.
      done_to = case when l.marked::text::bigint <= v_now then 0 end
    returning * into v_look;
    if v_look.done_to is null then
      return;
    end if;
  end if;
  v_age := v_now - v_look.idle_since::text::bigint;

  -- A row of which so much has happened since that numbers of transactions have gone around has a negative age.
  select coalesce(array_agg(k.id order by k.id), '{}'),
    coalesce(array_agg(k.id order by k.id) filter (where (k.key <> '' or k.capacity is null) and not k.is_full
      and (k.age >= v_age or k.age < 0)
      and not exists (
        select from longshore.slot_groups g where g.limit_id = k.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)
          and (g.used > 0 or age(g.xmin) between 0 and v_age - 1) offset 0)
      and not exists (
        select from longshore.lanes l
        where l.task = k.task and l.concurrency_key = k.key and l.concurrency_key <> ''
          and exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0) offset 0)), '{}')
  into v_page, v_ids
  from (
    select k.id, k.task, k.key, k.capacity, k.is_full, age(k.xmin) as age from longshore.limits k
    where k.id > v_look.done_to order by k.id limit c_page
  ) k;
  /* point: found */
  if v_ids <> '{}' then
    begin
      /* guard: limits-lock */ perform pg_advisory_xact_lock(hashtext('longshore.limits'), 0); /* end limits-lock */
    exception when lock_not_available then
      -- The same page again in the next call.
      is_done := false;
      return;
    end;
    select coalesce(array_agg(h.id), '{}'), array_agg(h.groups) into v_ids, v_held
    from (
      select k.id, count(g.number) as groups
      from (select k.id from unnest(v_ids) as k(id) order by k.id) k
      left join lateral (
        select g.number from longshore.slot_groups g where g.limit_id = k.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1)
        order by g.number
        /* guard: group-locks */ for update skip locked /* end group-locks */
      ) g on true
      group by k.id
    ) h;
    /* point: held */
    -- A later statement: it sees what the last holder of each group has done.
    v_ids := array(
      select l.id
      from unnest(v_ids, v_held) as h(id, groups)
      cross join lateral (
        select k.id from longshore.limits k where k.id = h.id and not k.is_full offset 0 for update skip locked
      ) l
      where /* guard: all-groups */ h.groups = (select count(*) from longshore.slot_groups g where g.limit_id = h.id) /* end all-groups */
        /* guard: none-used */ and not exists (
          select from longshore.slot_groups g where g.limit_id = h.id and g.used > 0 offset 0) /* end none-used */
      order by l.id);
    delete from longshore.slot_groups g where g.limit_id = any (v_ids);
    delete from longshore.limits k where k.id = any (v_ids);
    /* guard: tell-relay */ perform longshore.note_changes(p_limits => v_ids); /* end tell-relay */
    forgotten := cardinality(v_ids);
  end if;
  is_done := cardinality(v_page) < c_page;
  update longshore.limit_looks l set done_to = case when not is_done then v_page[c_page] end;
end
$$;
