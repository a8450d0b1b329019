-- A moment among options given as JSON, a text that Postgres reads as a timestamp, in milliseconds since 1970; or null where
-- it is not given.
create function longshore.option_time(p_options jsonb, p_name text) returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_time timestamptz;
begin
  begin
    v_time := longshore.option_text(p_options, p_name, 100)::timestamptz;
  exception when datetime_field_overflow or invalid_datetime_format or invalid_parameter_value
    or invalid_time_zone_displacement_value
  then
    v_time := 'infinity';
  end;
  if v_time < '1970-01-01 00:00:00+00' or v_time >= '2109-05-15 00:00:00+00' then
    raise exception 'longshore: % must lie between 1970 and 2109, got %',
      p_name, left((p_options -> p_name)::text, 200)
      using errcode = 'invalid_parameter_value', hint = 'Write it as a text like "2030-01-31T12:00:00Z".';
  end if;
  return floor(extract(epoch from v_time) * 1000);
end
$$;
