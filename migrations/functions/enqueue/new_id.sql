-- A UUIDv7 whose 12 bits after the version hold the microseconds, so that ids made one after another in one
-- session ascend.
create function longshore.new_id() returns uuid
language plpgsql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_us bigint := floor(extract(epoch from clock_timestamp()) * 1000000)::bigint;
  v_fraction int := ((v_us % 1000) * 4096 / 1000)::int;
  v_bytes bytea := uuid_send(gen_random_uuid());
begin
  v_bytes := overlay(v_bytes placing substring(int8send(v_us / 1000) from 3) from 1 for 6);
  v_bytes := set_byte(v_bytes, 6, 112 | (v_fraction >> 8));
  v_bytes := set_byte(v_bytes, 7, v_fraction & 255);
  return encode(v_bytes, 'hex')::uuid;
end
$$;
