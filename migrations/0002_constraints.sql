-- What a job may ask of a worker: properties whose keys the deployment declares, at most three.

alter table longshore.settings
  add property_keys text[] not null default '{gpu,mem,region}',
  add constraint at_most_three_property_keys check (cardinality(property_keys) <= 3),
  add constraint property_keys_are_words check (
    array_to_string(property_keys, ',') ~ '^([a-z][a-z0-9_]{0,39}(,[a-z][a-z0-9_]{0,39})*)?$'
    -- No commas inside a key, no nulls.
    and cardinality(string_to_array(array_to_string(property_keys, ','), ',')) = cardinality(property_keys)),
  add constraint property_keys_differ check (
    coalesce(property_keys[1] <> property_keys[2], true) and coalesce(property_keys[1] <> property_keys[3], true)
    and coalesce(property_keys[2] <> property_keys[3], true));

-- The canonical form: sorted keys, values percent-encoded.
alter table longshore.lanes
  add constraint constraint_tag_is_canonical
    check (constraint_tag ~ '^c:([a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+(,[a-z][a-z0-9_]{0,39}=([ -$&-+.-<>-~-]|%[0-9A-F]{2})+){0,2})?$');

alter table longshore.workers
  add properties jsonb not null default '{}' check (jsonb_typeof(properties) = 'object'),
  add constraint at_most_eight_constraint_tags
    check (cardinality(constraint_tags) between 1 and 8 and 'c:' = any (constraint_tags)),
  add constraint arrays_in_bounds
    check (cardinality(tags) <= 1000 and cardinality(tasks) <= 10000 and cardinality(queues) <= 1000);

-- For finding the workers that a lane's jobs may go to.
-- Rows change when a worker begins or ends to listen: without a pending list that look-ups would have to read.
create index workers_by_tag on longshore.workers using gin (tags) with (fastupdate = off);
create index workers_by_constraint_tag on longshore.workers using gin (constraint_tags) with (fastupdate = off);
