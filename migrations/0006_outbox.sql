-- Redis in front: what has changed and is not known there yet, and what the relay has made known.

-- Names the deployment in Redis, so that several can share a server.
alter table longshore.settings
  add deployment text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)
    check (deployment ~ '^[a-z0-9]{1,40}$');

-- A dirty set, no log: a row names what changed, one row for each transaction of ours. The relay reads the truth of it,
-- brings Redis up to date and deletes the row, so late commits and repetition cannot matter.
-- `lane`, `score`: where all jobs of the row stand, if that is one place. `lanes`: those whose limits were set or removed.
-- `hinted`: whoever commits it tells Redis by itself, so the relay need not be woken for it.
create table longshore.outbox (
  id bigint generated always as identity primary key,
  jobs uuid[] not null default '{}',
  lane int,
  score bigint,
  limits int[] not null default '{}',
  lanes int[] not null default '{}',
  workers int[] not null default '{}',
  hinted boolean not null default false,
  created_at timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
-- Ids do not compress.
alter table longshore.outbox alter jobs set storage external;

-- `rank`: a relay takes the lease from a worker. `asleep`: the relay waits to be notified.
alter table longshore.leader
  add rank smallint not null default 0,
  add asleep boolean not null default false;

-- How jobs of a queue are handed to workers; what is null is up to the relay's own settings.
create table longshore.queues (
  name text primary key check (length(name) between 1 and 100),
  mode text check (mode in ('fanout', 'balanced')),
  strategy text check (strategy in ('least-queue', 'round-robin', 'random')),
  width int check (width between 1 and 1000)
);

-- How far Redis is, by queue: the life of its content, and the number of the last step whose outbox rows are deleted. A
-- Redis that is behind this has lost something.
create table longshore.relayed (
  queue text primary key,
  generation text not null,
  seq bigint not null
) with (fillfactor = 50);

-- At the commit, as late as possible, since a transaction may be open for minutes: notify the relay if it sleeps.
create function longshore.outbox_written() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if (select l.asleep from longshore.leader l) then
    perform pg_notify('longshore.outbox', '');
  end if;
  return null;
end
$$;
create constraint trigger outbox_written after insert on longshore.outbox
  deferrable initially deferred for each row when (not new.hinted) execute function longshore.outbox_written();
