-- Give back slots that this transaction has taken: one entry for each, with its limit and the number of its slot group. Their
-- rows are held, so nobody can have found the limit full meanwhile.
create function longshore.untake_slots(p_limits int[], p_numbers smallint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- By their key, however many there are.
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  update longshore.slot_groups g set used = g.used - s.slots
  from (
    select s.id, s.number, count(*)::int as slots from unnest(p_limits, p_numbers) as s(id, number) group by 1, 2
  ) s
  where g.limit_id = s.id and g.number = s.number;
end
$$;
