-- Cancel what is left of a group, also inside a user's transaction: jobs that have not started never start, those that run
-- are told, and however their runs end they end as cancelled. No job can be added any more.
-- Answers `cancelled` (nothing is left), `cancelling` (jobs run), `finished` or `unknown` (also for another role's group). Waits at most
-- a second for the lock of a row.
-- public: producer
create function longshore.cancel_group(p_group uuid) returns text
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
    select from longshore.groups g where g.id = p_group and longshore.is_own(longshore.acting_role(), g.enqueued_by))
  then
    return longshore.cancel_any_group(p_group);
  end if;
  return 'unknown';
end
$$;
