-- Whether a role may touch what another has enqueued. It may if that is itself, or a role that it is a member of; if both are members of one
-- role that was granted longshore_producer (the logins of one service); or if it may read the table of jobs anyway (the owner).
create function longshore.is_own(p_role oid, p_enqueued_by oid) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return p_enqueued_by = p_role
    or pg_has_role(p_role, p_enqueued_by, 'member')
    or has_table_privilege(p_role, 'longshore.jobs', 'select')
    or exists (
      -- Not pg_has_role: a superuser counts as a member of every role, and its jobs are not everybody's.
      with recursive above(id) as (
        select p_enqueued_by
        union
        select m.roleid from above a join pg_auth_members m on m.member = a.id
      )
      select from longshore.roles r
      join pg_auth_members s on s.roleid = to_regrole(quote_ident(r.prefix || '_producer'))
      join above a on a.id = s.member
      where pg_has_role(p_role, s.member, 'member'));
end
$$;
