-- A running worker has other properties from now on; the next claim goes by them. False: its row is gone.
-- public: worker
create function longshore.set_properties(p_worker int, p_properties jsonb, p_constraint_tags text[], p_secret bytea default null)
returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.check_properties(array(select jsonb_object_keys(p_properties)));
  p_worker := longshore.need_worker(p_worker, p_secret);
  update longshore.workers w set properties = p_properties, constraint_tags = p_constraint_tags
  where w.id = p_worker and w.dead_at is null;
  return found;
end
$$;
