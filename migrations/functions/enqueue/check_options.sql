-- Refuse options that are not a JSON object, and any that is not known: a misspelt one would silently do nothing.
create function longshore.check_options(p_options jsonb, p_known text[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_unknown text;
begin
  if p_options is null then
    return;
  end if;
  if jsonb_typeof(p_options) <> 'object' then
    raise exception 'longshore: options must be a JSON object, got %', left(p_options::text, 200)
      using errcode = 'invalid_parameter_value', hint = format('Options are %s.', array_to_string(p_known, ', '));
  end if;
  select k into v_unknown from jsonb_object_keys(p_options) k where k <> all (p_known) limit 1;
  if v_unknown is not null then
    raise exception 'longshore: unknown option "%"', left(v_unknown, 200)
      using errcode = 'invalid_parameter_value', hint = format('Options are %s.', array_to_string(p_known, ', '));
  end if;
end
$$;
