/**
 * The command line is told arguments that make no sense: it answers in one line with a code, never with a stack. And it is told
 * names and errors that would steer a terminal: none of that reaches one.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, inject, it } from 'vitest'
import { createProducer, defineTask } from '../../src/index.ts'
import { visible, visibleJson } from '../../src/runtime/visible.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const ID = '0198c0de-0000-7000-8000-000000000000'

const run = async (args: string[], env: Record<string, string> = {}) =>
  spawnCli(args, { DATABASE_URL: database.url, ...env }).ended

describe('the command line', () => {
  const CALLS: [args: string[], code: number, said: string][] = [
    [['cancel', "'; drop schema longshore cascade; --"], 2, 'a job id is a UUID'],
    [['cancel', `${ID}\n`], 2, 'a job id is a UUID'],
    [['explain', 'x'.repeat(3000)], 2, 'a job id is a UUID'],
    [['logs', ID, '--limit', 'NaN'], 2, '--limit must be a whole number'],
    [['logs', ID, '--limit', '-1'], 2, '--limit must be a whole number'],
    [['logs', ID, '--limit', '1e99'], 2, '--limit must be a whole number'],
    [['drain', '9'.repeat(40)], 2, 'no live worker has the id or name'],
    [['drain', '{}', '*', '%', "'"], 2, 'no live worker has the id or name {}, *, %'],
    [['queues', 'a\u0007b', '--fanout-width', '1'], 2, 'without control characters'],
    [['queues', 'q', '--fanout-width', '-1'], 2, 'whole number'],
    [['queues', 'q', '--schedule-mode', 'constructor'], 2, 'Allowed choices are fanout, balanced'],
    [['properties', '__proto__'], 2, 'is not a valid key'],
    [['properties', 'gpu', 'gpu'], 2, 'is named twice'],
    [['workflows', '--limit', 'Infinity'], 2, '--limit must be a whole number'],
    [['watchdog', '--after', '-5s'], 2, 'after must be'],
    [['migrate', '--schema', 'a"; drop schema longshore; --'], 2, 'is not a valid name'],
    [['migrate', '--schema', 'constructor.prototype'], 2, 'is not a valid name'],
    [['migrate', '--patience', 'for ever'], 2, 'patience must be milliseconds or a text'],
    [['worker', './no such module.js'], 2, 'no such module'],
    [['worker', 'data:text/javascript,export default 5'], 2, ''],
    [['worker', './package.json', '--lease', 'Infinity'], 2, '--lease must be a duration'],
    [['relay', '--queue-depth', '1e400'], 2, '--queue-depth must be a whole number'],
    [['relay', '--redis-url', 'redis://user:hunter2@[::1'], 2, 'a Redis URL must start with redis://'],
    [['no-such-command'], 2, "unknown command 'no-such-command'"],
    [['top', '--no-such-flag'], 2, "unknown option '--no-such-flag'"],
  ]
  const titled = CALLS.map(call => [call[0].join(' ').slice(0, 60), ...call] as const)

  it.concurrent.each(titled)('refuses longshore %s', async (_, args, code, said) => {
    const ended = await run(args)
    expect(ended.stderr).toContain(said)
    expect(ended.stderr).not.toMatch(/\n {4}at |hunter2/)
    expect(ended.stderr.length).toBeLessThan(2000)
    expect(ended.code).toBe(code)
  })

  it('says where a wrong variable of the environment is, without what may be secret in it', async () => {
    const { code, stderr } = await run(['relay'], {
      DATABASE_URL: 'mysql://root:hunter2@localhost/x',
      TASK_SCHEDULE_MODE: '__proto__',
      LONGSHORE_QUEUE_DEPTH: '-0x10',
    })
    expect(code).toBe(2)
    expect(stderr).toContain('environment DATABASE_URL must start with postgres://')
    expect(stderr).toContain('environment TASK_SCHEDULE_MODE must be one of')
    expect(stderr).toContain('environment LONGSHORE_QUEUE_DEPTH must be a whole number')
    expect(stderr).not.toContain('hunter2')
  })
})

/** What a terminal acts upon: C0 (but our line breaks), DEL, C1, line separators, and what turns the direction. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const STEERING = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/
/** In the names below; `FAKE` would stand at the beginning of a line. */
const MARK = 'mk-'
const EVIL = `${MARK}\x1b]0;own\x07\x1b[2J\r\nFAKE \t\x9b31m\x85\x7f\u202e\u2066\u2028\u2029`

/** In every text of every table: the API would refuse most of it. */
async function poison(): Promise<void> {
  const columns = await database.rows<{ table: string; column: string; type: string }>(
    `select c.relname as table, a.attname as column, format_type(a.atttypid, null) as type
     from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = 'longshore'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
       and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
       and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype)`,
  )
  const checks = await database.rows<{ drop: string }>(
    `select format('alter table %s drop constraint %I', c.conrelid::regclass, c.conname) as drop
     from pg_constraint c where c.connamespace = 'longshore'::regnamespace and c.contype = 'c' and c.coninhcount = 0`,
  )
  for (const check of checks) await database.rows(check.drop)
  await database.rows('set session_replication_role = replica')
  for (const { table, column, type } of columns) {
    const evil = type === 'jsonb' ? JSON.stringify(EVIL).slice(1, -1) : EVIL
    const put =
      type === 'text[]'
        ? `(select coalesce(array_agg(replace(item, $1, $2)), '{}') from unnest(${column}) item)`
        : `replace(${column}::text, $1, $2)::${type}`
    await database.rows(
      `update longshore.${table} set ${column} = ${put} where ${column}::text like '%mk-%'`,
      [MARK, evil],
    )
  }
  await database.rows('set session_replication_role = origin')
}

describe('names and errors that would steer a terminal', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longshore-evil-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  const expectTame = (what: string, { stdout, stderr }: { stdout: string; stderr: string }) => {
    for (const text of [stdout, stderr]) {
      expect(text, what).not.toMatch(STEERING)
      expect(text, what).not.toMatch(/^FAKE/m)
    }
  }

  it('reach neither stdout nor stderr of any command, and stay what they are in JSON', async () => {
    const producer = createProducer({ postgres: database.url })
    const plain = defineTask<string>({ name: 'mk-plain', retry: { maxAttempts: 1 } })
    const limited = defineTask<string>({
      name: 'mk-limited',
      queue: 'mk-queue',
      tag: 'mk-tag',
      concurrency: 1,
    })
    const group = producer.group({ name: 'mk-group' })
    const failing = group.add(plain, 'a')
    group.add(plain, 'b', { after: failing })
    group.add(plain, 'c', { delay: '1h' })
    await group.submit()
    const halting = { workflow: 'mk-flow', onWorkflowFailure: 'halt' } as const
    const halted = await producer.enqueue(plain, 'd', halting)
    await producer.enqueue(plain, 'e', halting)
    const waiting = await producer.enqueue(limited, 'f', { constraints: { gpu: 'mk-gpu' } })
    const hand = await workByHand(database, ['mk-plain'], ['default'], { gpu: 'mk-gpu' })
    const error = { code: 'HANDLER_FAILED', message: 'mk-error' }
    const ends = (await hand.claim(2)).map(({ id, lease_token: token }) => ({
      id,
      token,
      outcome: 'failed',
      error,
    }))
    expect(ends.map(({ id }) => id).sort()).toEqual([failing.id, halted.id].sort())
    await hand.settleOthers(ends)
    await database.rows(
      `update longshore.workers set name = 'mk-worker', expires_at = now() + interval '1 h'`,
    )
    await database.rows(
      `insert into longshore.job_logs (job_id, lease_token, at, seq, day, attempt, level, message, data)
       values ($1, 1, now(), 1, current_date, 1, 'info', 'mk-line', '{"mk-key": "mk-value"}')`,
      [failing.id],
    )
    // Something for the doctor to find, and an error of Postgres.
    await database.rows(`update longshore.lanes set task = 'mk-other' where queue = 'mk-queue'`)
    await poison()
    const cancelling = await producer.enqueue(plain, 'g', { delay: '1h' })
    await database.rows(
      `create function longshore.evil() returns trigger language plpgsql as $$
       begin raise exception using message = ${`E'${[...EVIL].map(char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')}'`}; end $$`,
    )
    await database.rows(
      `create trigger evil before update or delete on longshore.jobs for each row when (old.id = '${cancelling.id}') execute function longshore.evil()`,
    )

    const shows: [args: string[], part?: string][] = [
      [['explain', failing.id], 'error'],
      [['explain', waiting.id], 'other'],
      [['groups'], 'group'],
      [['groups', group.id], 'plain'],
      [['workflows'], 'flow'],
      [['queues'], 'queue'],
      [['logs', failing.id], 'line'],
      [['logs', failing.id, '--follow'], 'line'],
      [['doctor', '--grace', '100']],
      [['drain', `${hand.id}`], 'worker'],
      [['drain', EVIL], ''],
      [['cancel', cancelling.id], ''],
      [['watchdog', '--after', EVIL], ''],
      [['worker', EVIL, '--lease', EVIL], ''],
      [['relay', '--schedule-mode', EVIL], ''],
      [[EVIL], ''],
      [['top', `--${EVIL}`], ''],
      [['top', '--once', '--interval', '100ms']],
      [['properties', EVIL]],
      [['migrate', '--schema', EVIL]],
    ]
    const seen = shows.map(async ([args, part]) => {
      const ended = await run(args)
      expectTame(args.join(' '), ended)
      // In an error its line break may begin another line, which is indented.
      const evil = part === '' ? EVIL.slice(0, EVIL.indexOf('\n')) : EVIL
      if (part !== undefined)
        expect(`${ended.stdout}${ended.stderr}`, args.join(' ')).toContain(`${visible(evil)}${part}`)
    })
    const json = [
      ['explain', waiting.id],
      ['groups', group.id],
      ['workflows'],
      ['queues'],
      ['logs', failing.id],
      ['top', '--once', '--interval', '100ms'],
    ].map(async args => {
      const ended = await run([...args, '--json'])
      expectTame(`${args.join(' ')} --json`, ended)
      // What it says is not changed: only how it is written.
      expect(JSON.stringify(JSON.parse(ended.stdout)), args.join(' ')).toContain(
        JSON.stringify(EVIL).slice(1, -1),
      )
    })
    await Promise.all([...seen, ...json])
    await producer.close()
  }, 120_000)

  it('do not get into the logs of a worker or a relay, nor into the start line of a worker', async () => {
    // The API allows these.
    const name = 'turned\u202e\u2066\u2028'
    const module = join(folder, 'tasks.mjs')
    const error = JSON.stringify(EVIL)
    writeFileSync(
      module,
      `import { defineTask } from '${new URL('../../dist/index.js', import.meta.url)}'
       const task = defineTask({ name: ${JSON.stringify(name)}, queue: ${JSON.stringify(name)}, retry: { maxAttempts: 1 } })
       export default [task.handle(() => { throw new Error(${error}) })]`,
    )
    const env = { DATABASE_URL: database.url, REDIS_URL: inject('redisUrl'), LONGSHORE_LOG_LEVEL: 'debug' }
    const producer = createProducer({ postgres: database.url })
    await producer.enqueue(defineTask<string>({ name, queue: name }), 'x')
    await producer.close()
    const clis = [spawnCli(['relay'], env), spawnCli(['worker', module, '--name', name], env)]
    const [relay, worker] = clis
    await Promise.all([relay?.says('the queue in Redis'), worker?.says('a job failed')])
    expect(worker?.said()).toContain(visibleJson(error).slice(1, -1))
    for (const cli of clis) {
      cli.child.kill('SIGTERM')
      const ended = await cli.ended
      expectTame(cli === relay ? 'relay' : 'worker', ended)
      for (const line of ended.stderr.split('\n').filter(text => text.startsWith('{'))) JSON.parse(line)
    }
  })

  it('have one place where they are made harmless: no other file of the command line writes', () => {
    const folder = new URL('../../src/cli/', import.meta.url)
    const writers = readdirSync(folder).filter(file =>
      /\bstd(out|err)\.write\(|console\./.test(readFileSync(new URL(file, folder), 'utf8')),
    )
    // The screen of `top` draws frames, which hold plain texts only: see top-frame.test.ts.
    expect(writers).toEqual(['live-screen.ts', 'output.ts'])
  })
})
