-- Give a group of which there are jobs its row back, or close it if none is left. Answers what was done; not is_done: why not.
-- public: owner
create function longshore.repair_group(p_group uuid, out is_done boolean, out said text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
begin
  is_done := true;
  insert into longshore.groups (id, created_at)
  select p_group, min(j.created_at) from longshore.jobs j where j.group_id = p_group having count(*) > 0
  on conflict do nothing;
  if found then
    said := 'the group has its row again, without its name';
  elsif exists (select from longshore.groups g where g.id = p_group and g.finished_at is not null) then
    -- The processes that waited for its end have been told.
    is_done := false;
    said := case when exists (select from longshore.jobs j where j.group_id = p_group)
      then 'an end state is written once: let the jobs that are left end, or cancel them' else 'it has ended' end;
  else
    select 'it is closed as ' || c.state into said from longshore.close_groups(array[p_group]) c;
    is_done := said is not null;
    said := coalesce(said, 'somebody holds it, or is adding to it: try again');
  end if;
end
$$;
