-- Roles: what processes may do is granted to roles of the server, see roles/grants.sql.

-- A row once `longshore migrate --roles` was run. `prefix`: of the roles' names. `checksum`: of the grants that were applied last.
create table longshore.roles (
  only_row boolean primary key default true check (only_row),
  prefix text not null check (prefix ~ '^[a-z_][a-z0-9_]{0,40}$'),
  checksum text not null
);

-- It runs at the commit, when whoever wrote the row is the user again.
alter function longshore.outbox_written() security definer;
