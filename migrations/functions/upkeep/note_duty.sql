-- The leader says that a duty fails, and why; without an error that it does not, or that there is none of that name any more.
-- public: worker, relay
create function longshore.note_duty(p_name text, p_error text, p_holder text default null, p_secret bytea default null) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  if p_error is null then
    delete from longshore.duties d where d.name = p_name;
  else
    insert into longshore.duties as d (name, error) values (p_name, left(p_error, 1000))
    on conflict (name) do update set error = excluded.error where d.error <> excluded.error;
  end if;
end
$$;
