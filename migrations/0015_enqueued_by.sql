-- Whose a job is: the role that enqueued it, which is the login or what it has set as its role. A producer reads, changes and cancels
-- only what is its own, see is_own.sql.
alter table longshore.jobs
  add enqueued_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user)));
alter table longshore.groups
  add enqueued_by oid not null
    default to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user)));
-- 0: of no role. What ends a job carries the role over; what did not would be seen by the owner alone.
alter table longshore.finished_jobs add enqueued_by oid not null default 0;

-- Names end up on terminals.
alter table longshore.lanes
  add constraint names_without_control_characters
    check ((queue || task || tag || concurrency_key) !~ E'[\\x01-\\x1f\\x7f-\\x9f]');
alter table longshore.workflows
  add constraint key_without_control_characters check (key !~ E'[\\x01-\\x1f\\x7f-\\x9f]');
alter table longshore.groups
  add constraint name_without_control_characters check (name !~ E'[\\x01-\\x1f\\x7f-\\x9f]');
alter table longshore.tasks
  add constraint names_without_control_characters check ((name || queue || tag) !~ E'[\\x01-\\x1f\\x7f-\\x9f]');
