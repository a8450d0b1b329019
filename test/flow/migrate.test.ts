import { spawn } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { createProducer, createRelay, createWorker, defineTask, migrate } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { withOptions } from '../support/odd-server.ts'

const database = useDatabase({ isEmpty: true })
const task = defineTask({ name: 'task' })

/** A process that migrates and exits, as ten app servers that start at once would. */
function migrateInProcess(schema: string): Promise<number | null> {
  const child = spawn(
    process.execPath,
    ['dist/cli/main.js', 'migrate', '--database-url', database.url, '--schema', schema],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  )
  return new Promise(resolve => child.on('exit', resolve))
}

const shapeOf = (schema: string) =>
  database.rows(
    `select table_name, column_name, data_type, is_nullable from information_schema.columns
     where table_schema = $1 order by 1, 2`,
    [schema],
  )

describe('migrate', () => {
  it('says which command to run on a database without the schema', async () => {
    const producer = createProducer({ postgres: database.url })
    const worker = createWorker({ postgres: database.url, handlers: [task.handle(() => undefined)] })
    const missing = { code: 'SCHEMA_MISSING', message: expect.stringContaining('run `longshore migrate`') }
    await expect(producer.enqueue(task, 1)).rejects.toMatchObject(missing)
    await expect(worker.start()).rejects.toMatchObject(missing)
    await expect(createRelay({ postgres: database.url }).start()).rejects.toMatchObject(missing)
    await producer.close()
    const other = createProducer({ postgres: database.url, schema: 'other_one' })
    await expect(other.get('01900000-0000-7000-8000-000000000001')).rejects.toThrow(
      'run `longshore migrate --schema other_one`',
    )
    await other.close()
  })

  it('prints on a dry run, and changes nothing', async () => {
    const steps = await migrate({ postgres: database.url, dryRun: true })
    expect(steps.map(step => step.name)).toContain('0001_schema')
    expect(steps.find(step => step.name === 'enqueue')?.sql).toContain('create function "longshore".enqueue(')
    expect(await database.rows("select from pg_namespace where nspname = 'longshore'")).toEqual([])
  })

  it('applies each step once, in order, when ten processes start at once', async () => {
    const exits = await Promise.all(Array.from({ length: 10 }, () => migrateInProcess('longshore')))
    expect(exits).toEqual(Array(10).fill(0))
    const applied = await database.rows<{ version: number }>(
      'select version from longshore.migrations order by applied_at',
    )
    expect(applied.map(row => row.version)).toEqual(
      [...applied.map(row => row.version)].sort((a, b) => a - b),
    )
    expect(await migrate({ postgres: database.url })).toEqual([])
  }, 60_000)

  it.each(['repeatable read', 'serializable'])(
    '[X1] [X13] where transactions are %s by default, those of longshore are READ COMMITTED',
    async isolation => {
      const postgres = withOptions(database.url, [
        `default_transaction_isolation=${isolation.replace(' ', '\\ ')}`,
      ])
      const producer = createProducer({ postgres, tasks: [task] })
      const worker = createWorker({ postgres, redis: '', handlers: [task.handle(() => undefined)] })
      const relay = createRelay({ postgres })
      try {
        await Promise.all([worker.start(), relay.start()])
        const group = producer.group()
        group.add(task, 2, { after: group.add(task, 1) })
        await group.submit()
        expect(await producer.waitForGroup(group)).toMatchObject({ counts: { succeeded: 2 } })
      } finally {
        await Promise.all([worker.stop(), relay.stop(), producer.close()])
      }
    },
  )

  it('heals a producer that was made before the schema was there', async () => {
    const producer = createProducer({ postgres: database.url, schema: 'late' })
    await expect(producer.enqueue(task, 1)).rejects.toMatchObject({ code: 'SCHEMA_MISSING' })
    await migrate({ postgres: database.url, schema: 'late' })
    expect(await producer.enqueue(task, 1)).toMatchObject({ isNew: true })
    await producer.close()
  })

  it.each(['second', 'user', '_x1'])(
    'installs into another schema (%s) that does not see the first',
    async schema => {
      await migrate({ postgres: database.url, schema })
      expect(await shapeOf(schema)).toEqual(await shapeOf('longshore'))
      const mine = createProducer({ postgres: database.url, schema })
      const theirs = createProducer({ postgres: database.url })
      const ran: string[] = []
      const worker = createWorker({
        postgres: database.url,
        schema,
        handlers: [task.handle(job => ran.push(job.id))],
      })
      await worker.start()
      const other = await theirs.enqueue(task, 1)
      const ref = await mine.enqueue(task, 1, { delay: 20 })
      await mine.waitFor(ref)
      await database.rows(`select "${schema}".enqueue('task', '{"from": "sql"}')`)
      expect(await theirs.get(ref)).toBeUndefined()
      expect(await theirs.get(other)).toMatchObject({ state: 'ready' })
      await worker.stop()
      await mine.close()
      await theirs.close()
      expect(ran).not.toContain(other.id)
    },
  )

  it('creates a function again when its text has changed, with another signature too, and drops one that is gone', async () => {
    await database.rows(`
      drop function second.score(int, timestamptz);
      create function second.score() returns text language sql as $$ select 'old' $$;
      create function second.gone() returns int language sql as $$ select 1 $$;
      update second.functions set checksum = 'old' where name = 'score';
      insert into second.functions values ('gone', 'x')`)
    const producer = createProducer({ postgres: database.url, schema: 'second' })
    await expect(producer.enqueue(task, 1)).rejects.toMatchObject({
      code: 'SCHEMA_OUTDATED',
      message: expect.stringContaining('run `longshore migrate --schema second`'),
    })
    const steps = await migrate({ postgres: database.url, schema: 'second' })
    expect(steps.map(step => step.name)).toEqual(['score'])
    expect(await database.rows('select second.score(0, to_timestamp(0))::text as score')).toEqual([
      { score: String(2047n << 42n) },
    ])
    const [gone] = await database.rows<{ n: number }>(
      "select count(*)::int as n from pg_proc where proname = 'gone'",
    )
    expect(gone?.n).toBe(0)
    await producer.enqueue(task, 1)
    await producer.close()
  })

  it('refuses a database that is newer than the code, and so does every process', async () => {
    await database.rows("insert into second.migrations (version, name) values (9999, '9999_future')")
    const newer = { code: 'SCHEMA_NEWER', message: expect.stringContaining('upgrade the longshore package') }
    await expect(migrate({ postgres: database.url, schema: 'second' })).rejects.toMatchObject(newer)
    const worker = createWorker({
      postgres: database.url,
      schema: 'second',
      handlers: [task.handle(() => undefined)],
    })
    await expect(worker.start()).rejects.toMatchObject(newer)
  })

  it('refuses a schema from before the first release, and so does every process: it says what to keep and what to drop', async () => {
    await migrate({ postgres: database.url, schema: 'before' })
    await database.rows(`
      update before.migrations set name = '0001_jobs';
      insert into before.migrations (version, name) values (2, '0002_constraints'), (15, '0015_enqueued_by')`)
    const shape = await shapeOf('before')
    const tooOld = {
      code: 'SCHEMA_OUTDATED',
      message: expect.stringMatching(
        /schema "before" .* before the first release .*0001_jobs.*: keep .* run `drop schema "before" cascade`, then `longshore migrate --schema before`/,
      ),
    }
    await expect(migrate({ postgres: database.url, schema: 'before' })).rejects.toMatchObject(tooOld)
    await expect(migrate({ postgres: database.url, schema: 'before', dryRun: true })).rejects.toMatchObject(
      tooOld,
    )
    const producer = createProducer({ postgres: database.url, schema: 'before' })
    const worker = createWorker({
      postgres: database.url,
      schema: 'before',
      handlers: [task.handle(() => undefined)],
    })
    await expect(producer.enqueue(task, 1)).rejects.toMatchObject(tooOld)
    await expect(worker.start()).rejects.toMatchObject(tooOld)
    await expect(createRelay({ postgres: database.url, schema: 'before' }).start()).rejects.toMatchObject(
      tooOld,
    )
    await producer.close()
    expect(await shapeOf('before')).toEqual(shape)
  })

  it.each(['Upper', '1st', 'a-b', 'x'.repeat(42), '', 'a"; drop schema longshore; --'])(
    'refuses the schema name %j',
    async schema => {
      await expect(migrate({ postgres: database.url, schema })).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
      })
    },
  )

  it('leaves nothing of a step that fails', async () => {
    await database.rows('create schema broken; create table broken.lanes (id int)')
    await expect(migrate({ postgres: database.url, schema: 'broken' })).rejects.toThrow('already exists')
    expect(await database.rows('select from broken.migrations')).toEqual([])
    const [jobs] = await database.rows<{ found: string | null }>("select to_regclass('broken.jobs') as found")
    expect(jobs?.found).toBeNull()
    await database.rows('drop table broken.lanes')
    await migrate({ postgres: database.url, schema: 'broken' })
    expect(await shapeOf('broken')).toEqual(await shapeOf('longshore'))
  })
})
