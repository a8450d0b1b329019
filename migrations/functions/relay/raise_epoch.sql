-- Redis has seen a later epoch than Postgres knows: go above both. Null: another leads. Bounded, so that epochs can always grow.
-- public: relay
create function longshore.raise_epoch(p_above bigint, p_holder text, p_secret bytea) returns bigint
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_epoch bigint;
begin
  if p_above is null or p_above not between 0 and 4503599627370496 then
    raise exception 'longshore: epoch % is out of bounds: from 0 to 2^52', p_above using errcode = 'invalid_parameter_value';
  end if;
  update longshore.leader l set epoch = greatest(l.epoch, p_above) + 1
  where /* guard: only-leader */ l.holder = p_holder and /* end only-leader */
    longshore.fits_secret(l.secret, p_secret) and l.expires_at > clock_timestamp()
  returning l.epoch into v_epoch;
  return v_epoch;
end
$$;
