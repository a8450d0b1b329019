-- A number among options given as JSON, or null where it is not given. Refuses what is not a number in range.
create function longshore.option_number(
  p_options jsonb, p_name text, p_least numeric, p_most numeric, p_is_whole boolean default true
) returns numeric
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_given jsonb := nullif(p_options -> p_name, 'null');
  v_number numeric := case when jsonb_typeof(v_given) = 'number' then v_given::numeric end;
begin
  if v_given is null or (v_number between p_least and p_most and not (p_is_whole and v_number <> trunc(v_number))) then
    return v_number;
  end if;
  raise exception 'longshore: % must be a % from % to %, got %', p_name,
    case when p_is_whole then 'whole number' else 'number' end, p_least, p_most, left(v_given::text, 200)
    using errcode = 'invalid_parameter_value';
end
$$;
