-- Lock candidates that were found without a lock and have been given slots: of p_rows those that are still ready, still where they were found, and
-- that no other transaction holds; at most p_most, best first. p_slots and p_key_slots: the numbers of the slot groups that each has been
-- given (-1: it needs none, null: there was none). Returns the slots in the same order, and as spare_… those of jobs that were not to be had.
create function longshore.lock_jobs(
  p_rows tid[], p_row_lanes int[], p_slots smallint[], p_key_slots smallint[], p_most int,
  out rows tid[], out slots smallint[], out key_slots smallint[],
  out spare_lanes int[], out spare_slots smallint[], out spare_key_slots smallint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- Of arrays as long as a claim the planner believes that they are short.
set enable_nestloop = off
-- `skip locked` passes over a row that another transaction holds, but not always: where the transaction that changes the row commits just
-- now, Postgres goes on to the row's new version and waits for the transaction that holds it. Here this could be a settle that waits for a slot
-- group of this claim. Then the call is given up (lock_not_available), and the worker sends it again at once.
set lock_timeout = '10ms'
as $$
begin
  with given as materialized (
    select g.* from unnest(p_rows, p_row_lanes, p_slots, p_key_slots) with ordinality as g(row, lane, slot, key_slot, no)
    where g.slot is not null and g.key_slot is not null
  ), locked as materialized (
    -- The state as a text, so that the ready index does not offer itself: the rows' places are known.
    select j.ctid from longshore.jobs j
    where j.ctid = any (array(select g.row from given g)) /* guard: still-ready */ and j.state::text = 'ready' /* end still-ready */ /* point: reading */
    order by j.score, j.id
    limit p_most
    for no key update /* guard: pass-over */ skip locked /* end pass-over */
  )
  select coalesce(array_agg(g.row order by g.no) filter (where l.ctid is not null), '{}'),
    array_agg(g.slot order by g.no) filter (where l.ctid is not null),
    array_agg(g.key_slot order by g.no) filter (where l.ctid is not null),
    array_agg(g.lane) filter (where l.ctid is null and (g.slot >= 0 or g.key_slot >= 0)),
    array_agg(nullif(g.slot, -1)) filter (where l.ctid is null and (g.slot >= 0 or g.key_slot >= 0)),
    array_agg(nullif(g.key_slot, -1)) filter (where l.ctid is null and (g.slot >= 0 or g.key_slot >= 0))
  into rows, slots, key_slots, spare_lanes, spare_slots, spare_key_slots
  -- A row that has changed since it was found has another place now.
  from given g left join locked l on l.ctid = g.row;
end
$$;
