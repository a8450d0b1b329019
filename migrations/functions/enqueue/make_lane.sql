-- The lane for these jobs, in a short transaction of its own: one at a time, so that many callers that need the same new
-- lane make one. Inside a user's transaction use find_lane, which never waits.
-- public: producer
create function longshore.make_lane(
  p_queue text, p_task text, p_tag text, p_constraint_tag text, p_key text default ''
) returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if p_constraint_tag <> 'c:' then
    perform longshore.check_properties(longshore.constraint_keys(p_constraint_tag));
  end if;
  perform pg_advisory_xact_lock(hashtext('longshore.make_lane'));
  return longshore.find_lane(p_queue, p_task, p_tag, p_constraint_tag, p_key);
end
$$;
