-- The hash to keep of a secret. Only an administrator, who may do everything by hand, goes without one.
create function longshore.check_secret(p_secret bytea) returns bytea
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_secret is null and pg_has_role(session_user, current_user, 'member') then
    return null;
  elsif p_secret is null or length(p_secret) < 16 then
    raise exception 'longshore: a worker or relay needs a secret of at least 16 random bytes' using errcode = 'LS005',
      hint = 'Start it with the longshore package or CLI, which make one up for each start.';
  end if;
  return sha256(p_secret);
end
$$;
