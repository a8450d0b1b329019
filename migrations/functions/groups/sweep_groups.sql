-- Close groups that no worker has closed: the one that ended the last job died before it could, or the last job was
-- cancelled or rescued. Looks at p_limit unfinished groups behind p_after; returns the last of them, or null at the end.
-- public: worker, relay
create function longshore.sweep_groups(p_after uuid, p_limit int, p_holder text default null, p_secret bytea default null)
returns uuid
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- Only a page of them, whatever the statistics say.
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  v_page uuid[];
begin
  perform longshore.need_leader(p_holder, p_secret);
  p_limit := least(p_limit, 10000);
  v_page := array(
    select g.id from longshore.groups g
    where g.finished_at is null and g.id > p_after order by g.id limit p_limit);
  perform longshore.close_groups(v_page);
  return case when cardinality(v_page) = p_limit then v_page[p_limit] end;
end
$$;
