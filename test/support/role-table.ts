/**
 * Who may do what. Each row is a line of the guide's table, and each has a test that tries it as a user with that role, on the real
 * store: `holds` makes the test's title from the row. `test/unit/docs-roles.test.ts` compares the guide with these rows.
 */
import { it } from 'vitest'

export interface RoleRow {
  readonly store: 'Postgres' | 'Redis'
  readonly role: 'producer' | 'worker' | 'relay' | 'reader'
  readonly may: boolean
  /** As it goes on after "the producer may" or "the producer may not". */
  readonly what: string
}

type Lines = Readonly<Record<'may' | 'may not', readonly string[]>>

const rowsOf = (store: RoleRow['store'], role: RoleRow['role'], lines: Lines): RoleRow[] =>
  (['may', 'may not'] as const).flatMap(word =>
    lines[word].map(what => ({ store, role, may: word === 'may', what })),
  )

export const ROLE_ROWS: readonly RoleRow[] = [
  ...rowsOf('Postgres', 'producer', {
    may: [
      'enqueue, in its own transactions too, and read, change, cancel and wait for its own jobs and groups',
      'do the same with what other logins of its service have enqueued',
    ],
    'may not': [
      'read payloads, results, errors, logs or progress of jobs that another service has enqueued',
      'change or cancel jobs that another service has enqueued, or add to its groups and read or cancel those',
      'learn ids of others: from `explain` of a full limit or a workflow, from watching groups, or by waiting',
      'let a workflow go on that a job of another service has halted',
      'change queue, tag, attempts or limits of a task that is known',
      'skip the checks of `longshore.enqueue` through another function',
      'claim, settle, lead, do the upkeep, or change anything but by the functions that it is granted',
      'wait for more jobs at once than the settings say, for longer than 32 days, or end the waits of another user',
      'stop claims, new workers or enqueues with a lock unseen: `/readyz` and `doctor` name its session',
    ],
  }),
  ...rowsOf('Postgres', 'worker', {
    may: [
      'register its tasks with their limits, claim, run and settle jobs and write their logs, with a secret that each start of a worker makes up',
      'drain every worker and let it take jobs again, and write the end of a group whose jobs have ended',
      'lead with the lowest rank and do the upkeep while no relay does',
    ],
    'may not': [
      'read payload, parents or group of a job that another worker holds, or ids and lease tokens of jobs',
      'claim, settle, complete, beat, listen, change properties or leave in the name of another worker',
      'write log lines or progress of a job that it has not held',
      'read the secret of a worker or of the leader, or go without one',
      'lead as a relay or for longer than a minute at a time, or do the upkeep without leading',
      'enqueue, cancel or read what producers enqueue; read the tables of jobs; write any table',
    ],
  }),
  ...rowsOf('Postgres', 'relay', {
    may: [
      'lead before workers, do the upkeep, read the outbox and note how far Redis is; read figures of all tables but what jobs carry',
    ],
    'may not': [
      'read the outbox, raise the epoch, note a generation, change the dispatch or do the upkeep without leading, or in the name of the leader',
      'raise the epoch so far that no later one is possible',
      'enqueue, claim, settle or register; read payloads, results or logs; read secrets; write any table',
    ],
  }),
  ...rowsOf('Postgres', 'reader', {
    may: [
      'look at the views and at every table, but for what jobs carry: `longshore top`, `groups`, `workflows`, `doctor`, `explain`',
    ],
    'may not': ['read payloads, results, errors beyond their messages, or logs; change anything'],
  }),
  ...rowsOf('Redis', 'producer', {
    may: ['tell the relay which jobs it has made ready'],
    'may not': [
      'read any key: ready jobs, jobs that were taken, queues, workers, limits',
      'write any key',
      'run a script, neither one that is loaded nor one of its own',
      'listen to any channel, not even to the hints of other producers',
      'ring a worker, or speak for a relay',
      'reach keys and channels of another deployment',
      'administer Redis, or look around in it',
    ],
  }),
  ...rowsOf('Redis', 'worker', {
    may: ['run the scripts that the relay has loaded', 'listen to its bell and to the beat of the relay'],
    'may not': [
      'run or load a script of its own, so none without an end',
      'write the head of a queue, as every step of the relay does',
      'tell workers that it leads',
      'listen to the hints of producers',
      'reach keys and channels of another deployment',
      'administer Redis, or look around in it',
    ],
  }),
  ...rowsOf('Redis', 'relay', {
    may: [
      'load scripts and run them',
      'listen to the hints of producers, tell workers that it leads, and ring them',
    ],
    'may not': [
      'run a script that is not loaded',
      'reach keys and channels of another deployment',
      'administer Redis, or look around in it',
    ],
  }),
]

/** A test that proves this row. */
export function holds(
  store: RoleRow['store'],
  role: RoleRow['role'],
  what: string,
  prove: () => Promise<void>,
): void {
  const row = ROLE_ROWS.find(each => each.store === store && each.role === role && each.what === what)
  if (!row) throw new Error(`role-table.ts has no row for ${store}, ${role}: ${what}`)
  it(`[X15] in ${store} the ${role} ${row.may ? 'may' : 'may not'} ${what}`, prove)
}

/** The guide's table. */
export function roleTable(): string {
  const lines = ['| store | role | may | may not |', '|---|---|---|---|']
  const seen = new Set<string>()
  for (const { store, role } of ROLE_ROWS) {
    if (seen.has(`${store} ${role}`)) continue
    seen.add(`${store} ${role}`)
    const cell = (may: boolean) =>
      ROLE_ROWS.filter(row => row.store === store && row.role === role && row.may === may)
        .map(({ what }) => what)
        .join('<br>')
    lines.push(`| ${store} | ${role} | ${cell(true)} | ${cell(false)} |`)
  }
  return lines.join('\n')
}
