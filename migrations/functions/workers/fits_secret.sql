-- Whether this is the secret of which the hash was kept. Without a secret: only for an administrator, where none was given.
-- Written so that Postgres puts it in the place of the call: no function is called at run time.
create function longshore.fits_secret(p_hash bytea, p_secret bytea) returns boolean
language sql stable
as $$
  select coalesce(
    p_hash = sha256(p_secret), p_hash is null and p_secret is null and pg_has_role(session_user, current_user, 'member'))
$$;
