-- The role that calls: what its session has set as its role, else its login. Inside a function that runs as its owner current_user is
-- that owner; `set role` takes only roles that the login is a member of. Short and without settings, so that it is inlined.
create function longshore.acting_role() returns oid
language sql stable
as $$
  select pg_catalog.to_regrole(pg_catalog.quote_ident(
    coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user)))::oid
$$;
