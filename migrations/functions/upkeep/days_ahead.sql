-- Today and so many days after it, by UTC.
create function longshore.days_ahead(p_count int) returns date[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_count > 366 then
    raise exception 'longshore: partitions for % days ahead are too many, at most 366 are possible', p_count
      using errcode = 'invalid_parameter_value';
  end if;
  return array(select (now() at time zone 'utc')::date + n from generate_series(0, p_count) n);
end
$$;
