-- This waiter waits for these jobs no more. Waits of other users stay.
-- public: producer
create function longshore.forget_awaited(p_waiter text, p_ids uuid[]) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  delete from longshore.awaited a where a.job_id = any (p_ids) and a.waiter = p_waiter and a.asked_by = longshore.acting_role();
end
$$;
