-- Claim from a single lane whose task has a limit: the common case of claim_limited, without a merge. Slots first, then as
-- many jobs as there are slots: a job that is locked in vain costs more than a slot that is given back. A limit without a
-- slot is closed if that is certain, see close_limit.
--
-- p_own: slots of the limit that this transaction has at hand, from runs that it ended; what is left of them is freed. p_from: as
-- in claim_plain.
create function longshore.claim_limited_lane(
  p_worker int, p_limit int, p_lane int, p_limit_id int, p_own smallint[], p_from bigint
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- One call takes at most half of a large limit: two calls under way with half of the slots each are faster than one with
  -- all.
  v_half int;
  v_is_full boolean;
  v_need int;
  v_own int := cardinality(p_own);
  v_slots smallint[] := p_own;
  v_claimed int := 0;
  v_said text;
  v_from bigint := coalesce(p_from, 0);
begin
  select case when k.capacity > 20 then (k.capacity + 1) / 2 else k.capacity end, k.is_full into v_half, v_is_full
  from longshore.limits k where k.id = p_limit_id;
  v_need := least(p_limit, v_half);
  -- Only who wants more slots than it has needs to know whether there are jobs for them.
  if v_need > v_own then
    select count(*) into v_need from (
      select from longshore.jobs j where j.lane = p_lane and j.state = 'ready' and j.score >= v_from
      order by j.score, j.id limit v_need
    ) head;
  end if;
  if v_need > v_own and not v_is_full then
    v_slots := p_own || longshore.take_slots(p_limit_id, v_need - v_own);
  end if;
  if v_is_full then
    -- It stays so: this call frees nothing that it could use itself.
    v_said := 'full';
  elsif cardinality(v_slots) < v_need then
    v_said := longshore.close_limit(p_limit_id);
    v_said := case v_said when 'room' then 'busy' else v_said end;
  elsif v_need = v_half and v_need < p_limit then
    v_said := 'more';
  end if;
  return query
  with head as materialized (
    select j.ctid from longshore.jobs j
    where j.lane = p_lane and j.state = 'ready' and j.score >= v_from
    order by j.score, j.id
    limit least(cardinality(v_slots), p_limit)
    for no key update skip locked
  ), claimed as (
    update longshore.jobs j
    set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
      lease_token = (select nextval('longshore.lease_tokens')), slot = v_slots[n.no]
    -- All of them are locked before the token is drawn: nobody who claims one of them and gives it back has a higher one.
    from unnest(array(select h.ctid from head h)) with ordinality as n(row, no)
    where j.ctid = n.row
    returning j.*
  )
  select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at,
    c.payload
  from claimed c order by c.score, c.id;
  get diagnostics v_claimed = row_count;
  if v_claimed < cardinality(v_slots) then
    perform longshore.reopen(longshore.free_slots(
      array_fill(p_lane, array[cardinality(v_slots) - v_claimed]), v_slots[v_claimed + 1:],
      array_fill(null::smallint, array[cardinality(v_slots) - v_claimed])));
    -- They may be wanted by jobs that were passed over.
    v_said := case when v_from > 0 then 'more' else v_said end;
  end if;
  if v_said is not null then
    id := null;
    answer := v_said;
    return next;
  end if;
end
$$;
