-- Refuse property keys that the deployment has not declared: a job that asks for one would wait for ever.
create function longshore.check_properties(p_keys text[]) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_declared text[];
  v_key text;
begin
  select s.property_keys into v_declared from longshore.settings s;
  foreach v_key in array p_keys loop
    if v_key = any (v_declared) then
      continue;
    end if;
    raise exception 'longshore: property key "%" is not declared; declared are: %',
      left(v_key, 200), coalesce(nullif(array_to_string(v_declared, ', '), ''), 'none')
      using errcode = 'LS001', hint = 'Use one of these, or declare the keys of the deployment with `longshore properties`.';
  end loop;
end
$$;
