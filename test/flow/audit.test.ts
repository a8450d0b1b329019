/** The red side of the audit: each invariant is broken by hand, and the audit must say so. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createProducer, defineTask, type Producer } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import type { QuestionOptions } from '../../src/postgres/questions.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { createJournal, type Journal, type JournalRun, mostAtOnce, overlaps } from '../support/journal.ts'

const database = useDatabase()
const plain = defineTask({ name: 'plain' })
const limited = defineTask({ name: 'limited', concurrency: 2, concurrencyPerKey: 1 })
const linked = defineTask<string>({ name: 'linked' })
let producer: Producer
let tx: TestClient
let journal: Journal
let ids: string[]

/**
 * Healthy jobs in every state, told apart by their payloads. Of `limited` two run, under the keys a and b, and each key has
 * one more that is ready. Of `linked`, a group in which `bad` has failed and `doomed` with it, `second` waits for `first` and
 * `third` for both; and a workflow of three, the first of which has the turn.
 */
beforeAll(async () => {
  tx = await database.connect()
  journal = createJournal({
    rows: async <Row>(text: string, values?: unknown[]) => (await tx.query(text, values)).rows as Row[],
  })
  await journal.install()
  producer = createProducer({ postgres: database.urlOf('producer'), tasks: [plain, limited, linked] })
  const worker = await workByHand(database, ['plain', 'limited'])
  const refs = await producer.enqueueMany(plain, ['succeeded', 'running'], { priority: 9 })
  refs.push(
    await producer.enqueue(plain, 'ready'),
    await producer.enqueue(plain, 'scheduled', { delay: '1h' }),
  )
  const cancelled = await producer.enqueue(plain, 'cancelled')
  await producer.cancel(cancelled)
  for (const key of ['a', 'b'])
    refs.push(
      ...(await producer.enqueueMany(limited, [`${key} 1`, `${key} 2`], {
        concurrencyKey: key,
        priority: 10,
      })),
    )
  const group = producer.group()
  const bad = group.add(linked, 'bad', { priority: 1 })
  const doomed = group.add(linked, 'doomed', { after: bad })
  const first = group.add(linked, 'first')
  const second = group.add(linked, 'second', { after: first })
  const third = group.add(linked, 'third', { after: [first, second] })
  await group.submit()
  refs.push(bad, doomed, first, second, third)
  for (const n of [1, 2, 3]) refs.push(await producer.enqueue(linked, `turn ${n}`, { workflow: 'in order' }))
  ids = [...refs, cancelled].map(ref => ref.id)
  const claimed = [...(await worker.claim(2)), ...(await worker.claim(2))]
  const done = claimed.find(job => job.payload === 'succeeded')
  if (done) await worker.settle([settling(done)])
  const linker = await workByHand(database, ['linked'])
  for (const { id, lease_token: token } of await linker.claim(1))
    expect(await linker.settleOthers([{ id, token, outcome: 'failed', error: null }])).toEqual([])
  const running = await database.rows(
    "select payload from longshore.jobs where state = 'running' order by score, id",
  )
  expect(running.map(row => row['payload'])).toEqual(['a 1', 'b 1', 'running'])
})
beforeEach(() => tx.query('begin'))
afterEach(() => tx.query('rollback'))
afterAll(() => producer.close())

/** Without what would keep the damage out. */
const UNGUARDED = `
  do $$
  declare v_name text; v_table text;
  begin
    for v_name, v_table in
      select conname, conrelid::regclass from pg_constraint
      where contype = 'c' and conparentid = 0 and connamespace = 'longshore'::regnamespace
        and conrelid::regclass::text in (
          'longshore.jobs', 'longshore.finished_jobs', 'longshore.limits', 'longshore.slot_groups', 'longshore.groups')
    loop
      execute format('alter table %s drop constraint %I', v_table, v_name);
    end loop;
  end $$`
const FINISHED =
  'id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until, state, attempts, max_attempts, payload'
const job = (payload: string) => `payload = '"${payload}"'`
const idOf = (payload: string) => `(select id from longshore.jobs where ${job(payload)})`
const endedOf = (payload: string) => `(select id from longshore.finished_jobs where ${job(payload)})`
const keyLimit = (key: string) =>
  `(select id from longshore.limits where task = 'limited' and key = '${key}')`

describe('the audit', () => {
  it('finds nothing where everything is in order', async () => {
    expect(await auditPostgres(tx, 'longshore', { enqueued: ids })).toEqual([])
    expect(await journal.auditJournal()).toEqual([])
  })

  const lost: Partial<QuestionOptions> = { enqueued: ['00000000-0000-7000-8000-000000000000'] }
  it.each<[number, string, string, Partial<QuestionOptions>?]>([
    [1, 'it was enqueued and is nowhere', 'select', lost],
    [1, 'nobody enqueued it', 'select', lost],
    [1, 'nothing is left to do, and it is ready', 'select', { isDrained: true }],
    [
      2,
      'it is ready, and has ended as failed',
      `insert into longshore.finished_jobs (${FINISHED})
       select id, score, 0, created_at, null, now(), lane, null, current_date, 'failed', 0, 1, payload
       from longshore.jobs where ${job('ready')}`,
    ],
    [
      2,
      'it is among the unfinished as failed',
      `update longshore.jobs set state = 'failed' where ${job('ready')}`,
    ],
    [
      2,
      'it is in the history as ready',
      `update longshore.finished_jobs set state = 'ready' where ${job('succeeded')}`,
    ],
    [
      2,
      'it succeeded and never ran',
      `update longshore.finished_jobs set started_at = null where ${job('succeeded')}`,
    ],
    [2, 'its lane 0 does not exist', `update longshore.jobs set lane = 0 where ${job('ready')}`],
    [
      3,
      'has ended it 2 times',
      `insert into longshore.finished_jobs (${FINISHED})
       select id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until - 1, state, attempts,
         max_attempts, payload from longshore.finished_jobs where ${job('succeeded')}`,
    ],
    [
      3,
      'it runs with token',
      `insert into longshore.finished_jobs (${FINISHED})
       select id, score, lease_token, created_at, started_at, now(), lane, worker_id, current_date, 'failed', 1, 1, payload
       from longshore.jobs where ${job('running')}`,
    ],
    [3, 'token 1000 was never drawn', `update longshore.jobs set lease_token = 1000 where ${job('running')}`],
    [3, 'is held by 2 workers', `update longshore.jobs set worker_id = 0 where ${job('a 1')}`],
    [
      4,
      'it is running with worker none',
      `update longshore.jobs set worker_id = null where ${job('running')}`,
    ],
    [4, 'token 0', `update longshore.jobs set lease_token = 0 where ${job('running')}`],
    [4, 'start none', `update longshore.jobs set started_at = null where ${job('running')}`],
    [4, 'it is ready with worker 1', `update longshore.jobs set worker_id = 1 where ${job('ready')}`],
    [5, 'used 1, held by 0 running jobs', `update longshore.jobs set slot = null where ${job('a 1')}`],
    [5, 'used 1, held by 0 running jobs', `update longshore.jobs set key_slot = null where ${job('a 1')}`],
    [
      5,
      'it does not exist, held by 1 running jobs',
      `update longshore.jobs set slot = 7 where ${job('a 1')}`,
    ],
    [5, 'used 0, held by 1 running jobs', 'update longshore.slot_groups set used = used - 1'],
    [5, 'used -1 of', 'update longshore.slot_groups set used = -1'],
    [5, 'used 2 of 1', 'update longshore.slot_groups set used = 2'],
    [
      5,
      'allows 2, its slot groups hold 1',
      `delete from longshore.slot_groups where limit_id = ${keyLimit('')} and number = 1`,
    ],
    [5, 'allows 3, its task says 2', `update longshore.limits set capacity = 3 where id = ${keyLimit('')}`],
    [5, 'which does not exist', "delete from longshore.limits where key = 'a'"],
    [5, `it runs without a slot of limit`, `update longshore.jobs set slot = null where ${job('a 1')}`],
    [5, `(task limited, key 'a')`, `update longshore.jobs set key_slot = null where ${job('a 1')}`],
    [
      5,
      'is closed, and 0 of 1 slots are used',
      `update longshore.limits set is_full = true; update longshore.slot_groups set used = 0`,
    ],
    [5, 'no claim would look at it', 'delete from longshore.lane_heads'],
    [5, 'no claim would look at it', 'update longshore.lane_heads set score = score + 1'],
    [
      5,
      'no claim would look at it',
      `update longshore.lane_heads set closed_by = ${keyLimit('a')}; update longshore.limits set is_full = false`,
    ],
    [6, 'and waits for 0 things', `update longshore.jobs set state = 'waiting' where ${job('ready')}`],
    [6, 'waits for 2 things, of which 1 are', `update longshore.jobs set pending = 2 where ${job('second')}`],
    [6, 'waits for 1 things, of which 2 are', `update longshore.jobs set pending = 1 where ${job('third')}`],
    [
      6,
      'waits for 0 things, of which 1 are',
      `update longshore.jobs set pending = null where ${job('second')}`,
    ],
    [6, 'it is ready and waits for 1', `update longshore.jobs set state = 'ready' where ${job('second')}`],
    [6, 'of which 0 are open', `delete from longshore.edges where child = ${idOf('second')}`],
    [6, 'waits for 1 things, of which 0', `update longshore.jobs set has_turn = null where ${job('turn 2')}`],
    [
      7,
      'it is waiting, although job',
      `insert into longshore.edges (parent, child) values (${endedOf('bad')}, ${idOf('second')})`,
    ],
    [
      7,
      '(cancel), has ended as failed',
      `insert into longshore.edges (parent, child, policy) values (${endedOf('bad')}, ${idOf('second')}, 'cancel')`,
    ],
    [
      7,
      'it is succeeded, although job',
      `update longshore.finished_jobs set state = 'succeeded' where ${job('doomed')}`,
    ],
    [
      7,
      'every job that it was to run after has succeeded',
      `update longshore.finished_jobs set state = 'dependency_failed' where ${job('cancelled')}`,
    ],
    [
      7,
      'every job that it was to run after has succeeded',
      `update longshore.finished_jobs set state = 'succeeded' where ${job('bad')}`,
    ],
    [
      7,
      'every job that it was to run after has succeeded',
      `update longshore.edges set policy = 'run' where parent = ${endedOf('bad')}`,
    ],
    [
      7,
      'of group none, and belongs to group',
      `insert into longshore.edges (parent, child) values (${idOf('ready')}, ${idOf('second')})`,
    ],
    [
      7,
      'of group none, and belongs to group',
      `insert into longshore.edges (parent, child, policy) values (${endedOf('succeeded')}, ${idOf('second')}, 'run')`,
    ],
    [
      7,
      'it waits in a circle',
      `insert into longshore.edges (parent, child) values (${idOf('third')}, ${idOf('second')})`,
    ],
    [
      7,
      'has ended as succeeded, and it is',
      "update longshore.groups set end_state = 'succeeded', finished_at = now()",
    ],
    [7, 'does not exist', 'delete from longshore.groups'],
    [9, 'no turn, and is the first', `update longshore.jobs set has_turn = false where ${job('turn 1')}`],
    [9, 'no turn, and is the first', `delete from longshore.jobs where ${job('turn 1')}`],
    [
      9,
      'it has the turn, and number 0 stands before it',
      `update longshore.jobs set has_turn = false where ${job('turn 1')};
       update longshore.jobs set has_turn = true where ${job('turn 2')}`,
    ],
    [9, 'does not exist', 'delete from longshore.workflows'],
    [
      9,
      'has no jobs, and nobody has removed it',
      "insert into longshore.workflows (key) values ('left over')",
    ],
    [
      9,
      'number 2 started at',
      `update longshore.finished_jobs set workflow = 99, workflow_seq = 1 where ${job('succeeded')};
       update longshore.finished_jobs set workflow = 99, workflow_seq = 2, started_at = now() - interval '1 hour'
       where ${job('bad')}`,
    ],
    [
      8,
      'it was cancelled at',
      `insert into longshore.finished_jobs (${FINISHED})
       select id, score, 0, created_at, null, started_at - interval '1 second', lane, null, current_date, 'cancelled', 0, 1,
         payload
       from longshore.jobs where ${job('running')}`,
    ],
    [8, 'and is ready', `update longshore.jobs set is_cancelled = true where ${job('ready')}`],
    [
      8,
      'was cancelled at -infinity, and it started',
      "update longshore.groups set cancelled_at = '-infinity'",
    ],
    [
      8,
      'was cancelled at -infinity, and it started',
      `update longshore.groups set cancelled_at = '-infinity';
       delete from longshore.finished_jobs where ${job('bad')};
       update longshore.jobs set group_id = (select id from longshore.groups) where ${job('running')}`,
    ],
    [13, 'which does not exist', 'delete from longshore.workers'],
    [13, 'whose lease ran out', "update longshore.workers set expires_at = now() - interval '11 seconds'"],
    [13, 'whose lease ran out', "update longshore.workers set dead_at = now() - interval '11 seconds'"],
    [
      13,
      'whose lease ran out',
      "update longshore.workers set expires_at = now() - interval '1 second'",
      { graceMs: 500 },
    ],
    [14, '4 attempts of 3', `update longshore.jobs set attempts = 4 where ${job('ready')}`],
    [14, '4 attempts of 3', `update longshore.finished_jobs set attempts = 4 where ${job('succeeded')}`],
    [14, '11 rescues of 10', `update longshore.jobs set rescues = 11 where ${job('ready')}`],
  ])('[%i] says “%s” (case %#)', async (invariant, problem, damage, options) => {
    await tx.query(UNGUARDED)
    await tx.query(damage)
    const found = await auditPostgres(tx, 'longshore', options)
    expect(found).toContainEqual(
      expect.objectContaining({ invariant, problem: expect.stringContaining(problem) }),
    )
  })

  it('allows a rescue some time, and a lowered limit to drain', async () => {
    await tx.query("update longshore.workers set expires_at = now() - interval '5 seconds'")
    await tx.query("select longshore.set_limits('limited', 1, 1)")
    await tx.query("update longshore.tasks set concurrency = 1 where name = 'limited'")
    expect(await auditPostgres(tx)).toEqual([])
  })

  it('tells the jobs of a circle, not those before and behind it', async () => {
    await tx.query(
      `insert into longshore.jobs (id, score, lane, state, max_attempts, payload, group_id, pending)
       select gen_random_uuid(), score, lane, state, max_attempts, '"behind"', group_id, 1 from longshore.jobs
       where ${job('third')}`,
    )
    await tx.query(
      `insert into longshore.edges (parent, child) values
         (${idOf('third')}, ${idOf('behind')}), (${idOf('third')}, ${idOf('second')})`,
    )
    const circle = (await auditPostgres(tx)).filter(({ problem }) => problem === 'it waits in a circle')
    const { rows } = await tx.query(`select id from longshore.jobs where ${job('second')} or ${job('third')}`)
    expect(circle.map(({ jobId }) => jobId).sort()).toEqual(rows.map(row => row.id).sort())
  })

  it('refuses a schema that is not a name', async () => {
    await expect(auditPostgres(tx, 'Robert"; drop')).rejects.toThrow('is not a valid name')
  })
})

describe('the journal', () => {
  const give = (payload: string, change: string) =>
    `update longshore.jobs set ${change} where ${job(payload)};`
  const back = "state = 'ready', worker_id = null, started_at = null, slot = null, key_slot = null"
  const again = "state = 'running', worker_id = 1, started_at = now()"
  const drawn = "lease_token = nextval('longshore.lease_tokens')"

  it.each<[number, string, string]>([
    [
      2,
      'the journal has a gap',
      `set local session_replication_role = replica; ${give('ready', "state = 'scheduled'")}
      set local session_replication_role = origin; ${give('ready', "state = 'ready'")}`,
    ],
    [2, 'it went from scheduled to running', give('scheduled', `${again}, ${drawn}, attempts = 1`)],
    [2, 'it went from ready to waiting', give('ready', "state = 'waiting', pending = 1")],
    [2, 'it left as running without a trace', `delete from longshore.jobs where ${job('running')}`],
    [2, 'it left as ready without a trace', `delete from longshore.jobs where ${job('ready')}`],
    [
      2,
      'it left as ready and ended as succeeded',
      `with gone as (delete from longshore.jobs where ${job('ready')} returning *)
       insert into longshore.finished_jobs (${FINISHED})
       select id, score, lease_token, created_at, now(), now(), lane, 1, current_date, 'succeeded', 1, 1, payload from gone`,
    ],
    [
      2,
      'it came back after it had ended',
      `insert into longshore.jobs (id, score, lane, state, max_attempts, payload)
       select id, score, lane, 'ready', 1, payload from longshore.finished_jobs where ${job('succeeded')}`,
    ],
    [3, 'it was claimed with token', give('running', back) + give('running', `${again}, attempts = 2`)],
    [3, 'without a claim', give('running', drawn)],
    [3, 'without a claim', give('running', 'worker_id = 2')],
    [
      3,
      'of its runs',
      give('running', back) + give('running', `${again}, attempts = 2`) + give('running', back),
    ],
    [3, 'was given 2 times', give('running', back) + give('running', `${again}, attempts = 2`)],
    [
      3,
      'was given to 2 workers',
      give(
        'ready',
        `state = 'running', worker_id = 2, started_at = now(), attempts = 1,
         lease_token = (select max(lease_token) from longshore.jobs)`,
      ),
    ],
    [
      8,
      'it was cancelled, and became ready',
      give('running', 'is_cancelled = true') + give('running', `${back}, is_cancelled = false`),
    ],
    [
      8,
      'it was cancelled while it ran, and ended as failed',
      `${give('running', 'is_cancelled = true')}
       select longshore.finish_job(j, 'failed') from longshore.jobs j where ${job('running')};
       update longshore.finished_jobs set state = 'failed' where ${job('running')}`,
    ],
    [14, 'a claim took it from attempt 0 to 0', give('ready', `${again}, ${drawn}`)],
    [14, 'its run ended with attempts 1 → 1 and rescues 0 → 1', give('running', `${back}, rescues = 1`)],
    [14, 'without a run', give('ready', 'rescues = 1')],
    [14, 'without a run', give('ready', 'attempts = 1')],
  ])('[%i] says “%s” (case %#)', async (invariant, problem, damage) => {
    await tx.query(damage)
    expect(await journal.auditJournal()).toContainEqual(
      expect.objectContaining({ invariant, problem: expect.stringContaining(problem) }),
    )
  })

  it('knows every run, and when it was', async () => {
    const before = await journal.runs()
    expect(before.map(run => [run.task, run.key, run.wentTo])).toEqual([
      ['limited', 'a', undefined],
      ['limited', 'b', undefined],
      ['plain', '', 'ended'],
      ['plain', '', undefined],
      ['linked', '', 'ended'],
    ])
    await tx.query(give('running', back))
    const after = await journal.runs()
    expect(after.map(run => run.wentTo)).toEqual([undefined, undefined, 'ended', 'ready', 'ended'])
    for (const run of after) expect(run.endedAt ?? Infinity).toBeGreaterThan(run.startedAt)
  })

  it('counts what ran at once', () => {
    const run = (startedAt: number, endedAt?: number) => ({ startedAt, endedAt }) as JournalRun
    expect(mostAtOnce([])).toBe(0)
    expect(mostAtOnce([run(1, 2), run(2, 3), run(3)])).toBe(1)
    expect(mostAtOnce([run(1, 4), run(2), run(3, 4), run(5, 6)])).toBe(3)
    expect(overlaps(run(1, 2), run(2, 3))).toBe(false)
    expect(overlaps(run(1), run(2, 3))).toBe(true)
  })
})

describe('workflows', () => {
  beforeEach(async () => {
    await producer.enqueueMany(plain, ['first', 'second'], { workflow: 'w', tx })
    await tx.query(`${UNGUARDED}; drop index longshore.jobs_one_turn`)
  })
  const run = (payload: string) =>
    `update longshore.jobs set state = 'running', worker_id = 1, started_at = clock_timestamp(), pending = null,
       attempts = attempts + 1, lease_token = nextval('longshore.lease_tokens') where ${job(payload)};`
  const ready = (payload: string) => `update longshore.jobs set state = 'ready' where ${job(payload)};`
  const ended = (payload: string) =>
    `select longshore.finish_job(j, 'succeeded') from longshore.jobs j where ${job(payload)};`

  it('are in order', async () => {
    expect(await auditPostgres(tx)).toEqual([])
    await tx.query(run('first') + ended('first'))
    await tx.query(`update longshore.jobs set has_turn = true where ${job('second')}; ${ready('second')}`)
    await tx.query(run('second'))
    expect(await journal.auditJournal()).toEqual([])
  })

  it.each<[string, string]>([
    ['no turn, and is the first', 'update longshore.jobs set has_turn = false where has_turn'],
    [
      'number 0 stands before it',
      'update longshore.jobs set has_turn = not has_turn where workflow is not null',
    ],
    ['does not exist', 'delete from longshore.workflows'],
    ['nobody has removed it', "insert into longshore.workflows (key) values ('v')"],
    [
      'before number 0 ended at',
      `${run('second')} ${run('first')} ${ended('first')}
       update longshore.finished_jobs set finished_at = clock_timestamp() where ${job('first')}`,
    ],
  ])('[9] the audit says “%s”', async (problem, damage) => {
    await tx.query(damage)
    expect(await auditPostgres(tx)).toContainEqual(
      expect.objectContaining({ invariant: 9, problem: expect.stringContaining(problem) }),
    )
  })

  it.each<[string, string]>([
    ['number 1 of its workflow started before number 0 had ended', ready('second') + run('second')],
    ['number 0 of its workflow started after number 1', ready('second') + run('second') + run('first')],
  ])('[9] the journal says “%s”', async (problem, damage) => {
    await tx.query(damage)
    expect(await journal.auditJournal()).toContainEqual(expect.objectContaining({ invariant: 9, problem }))
  })
})
