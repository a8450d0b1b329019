/** A migration to the next version beside processes of this one, which are then replaced one by one. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { migrate, type Producer } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { type NextVersion, useNextVersion } from '../support/next-version.ts'
import { nap, noops, tenant } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import type { Cli } from '../support/spawn-cli.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)
const next = useNextVersion({ version: '0.2.0', servesFrom: '0.1.0' })
/** As the next one, but it does not serve this version any more. */
const later = useNextVersion({ version: '9.0.0', servesFrom: '9.0.0' })

const env = { DATABASE_URL: database.url }
const spawned: Cli[] = []
const spawnCli = (build: NextVersion, args: string[]) => {
  const cli = build.spawnCli(args, env)
  spawned.push(cli)
  return cli
}
const migrateNext = (build = next) => spawnCli(build, ['migrate']).ended

const release = async () => (await database.rows('select version, serves_from from longshore.release'))[0]
const has = async (column: string) =>
  (
    await database.rows(
      "select from information_schema.columns where table_schema = 'longshore' and column_name = $1",
      [column],
    )
  ).length > 0

/** Back to this version, for the next test. */
const undo = async () => {
  // A test that failed may have left one at work.
  for (const { child, ended } of spawned.splice(0)) {
    child.kill('SIGKILL')
    await ended
  }
  await database.rows(`
    alter table longshore.jobs drop column if exists note;
    alter table longshore.finished_jobs drop column if exists note;
    delete from longshore.migrations where name like '%\\_next';
    update longshore.functions set checksum = 'to be made again';
    update longshore.release set version = '0.0.0', serves_from = '0.0.0'`)
  await migrate({ postgres: database.url })
}

/** Jobs of several kinds, one after another, until told to stop; answers their ids. */
function keepEnqueueing(producer: Producer) {
  let isOver = false
  const ids: string[] = []
  const [noop] = noops
  const enqueue = async () => {
    for (let n = 1; !isOver; n++) {
      const made = await Promise.all([
        producer.enqueue(nap, n),
        producer.enqueue(tenant, n, { concurrencyKey: `tenant-${n % 3}` }),
        producer.enqueue(nap, n, { workflow: `flow-${n % 2}` }),
        ...(noop ? [producer.enqueue(noop, n)] : []),
      ])
      ids.push(...made.map(({ id }) => id))
      // As fast as they are run.
      for (const ref of made) await producer.waitFor(ref)
    }
  }
  const done = Promise.all([enqueue(), enqueue()])
  return {
    async end() {
      isOver = true
      await done
      return ids
    },
  }
}

const countFinished = async () =>
  (await database.rows<{ n: number }>('select count(*)::int as n from longshore.finished_jobs'))[0]?.n ?? 0

/** So many more than now. */
const moreHaveRun = async (count: number) => {
  const before = await countFinished()
  await eventually(`${count} more jobs have ended`, async () => (await countFinished()) >= before + count)
}

describe('a migration to the next version', { timeout: 120_000 }, () => {
  beforeEach(async () => {
    expect(await has('note')).toBe(false)
  })
  afterEach(undo)

  it('goes on beside workers and producers of this one: nothing is lost, nothing runs twice', async () => {
    const producer = deployment.producer({ tasks: [nap, tenant, ...noops] })
    const old = await startProcess({ name: 'old' })
    const load = keepEnqueueing(producer)
    await moreHaveRun(20)

    // Two of the next version at once, and one of this one that knows nothing of it.
    const [one, other] = await Promise.all([
      migrateNext(),
      migrateNext(),
      migrate({ postgres: database.url }),
    ])
    expect([one.code, other.code]).toEqual([0, 0])
    expect(await release()).toEqual({ version: '0.2.0', serves_from: '0.1.0' })
    expect(await has('note')).toBe(true)

    // Whoever is of this version goes on; the new one comes, and the old one goes.
    await moreHaveRun(20)
    await startProcess({ name: 'new', build: next })
    await moreHaveRun(20)
    await old.stop()
    await old.ended
    await moreHaveRun(20)
    const ids = await load.end()
    for (const id of ids) expect(await producer.waitFor(id)).toMatchObject({ state: 'succeeded' })

    const runs = await deployment.runs()
    const ended = runs.filter(run => run.wentTo === 'ended').map(run => run.jobId)
    expect(ended.toSorted()).toEqual(ids.toSorted())
    expect(runs.filter(run => run.isRescued)).toEqual([])
  })

  it('comes before its workers, which say so, and after it this version still starts and leaves the schema alone', async () => {
    const tooEarly = await spawnCli(next, ['relay']).ended
    expect(tooEarly.code).toBe(1)
    expect(tooEarly.stderr).toMatch(/to apply\): run `longshore migrate` \[SCHEMA_OUTDATED\]/)
    expect((await migrateNext()).code).toBe(0)
    expect((await migrateNext()).stdout).toContain('nothing to do')
    // A process of this version that was started again, and migrates at its start as it always did.
    expect(await migrate({ postgres: database.url })).toEqual([])
    expect(await release()).toMatchObject({ version: '0.2.0' })
    const producer = deployment.producer({ tasks: [nap] })
    await startProcess({ name: 'started again' })
    expect(await producer.waitFor(await producer.enqueue(nap, 1))).toMatchObject({ state: 'succeeded' })
    const [row] = await database.rows<{ id: string }>("select longshore.enqueue('nap', '1') as id")
    expect(await producer.waitFor(String(row?.id))).toMatchObject({ state: 'succeeded' })
  })

  it('to a version that does not serve this one: it is refused from then on, and what runs keeps its jobs', async () => {
    const producer = deployment.producer({ tasks: [nap] })
    await startProcess()
    expect((await migrateNext(later)).code).toBe(0)
    const refused = {
      code: 'SCHEMA_NEWER',
      message: expect.stringMatching(
        /is of longshore 9\.0\.0, .* from version 9\.0\.0 on; this is .*: upgrade/,
      ),
    }
    await expect(migrate({ postgres: database.url })).rejects.toMatchObject(refused)
    await expect(deployment.producer().enqueue(nap, 1)).rejects.toMatchObject(refused)
    await expect(deployment.worker({ handlers: [nap.handle(() => undefined)] })).rejects.toMatchObject(
      refused,
    )
    await startProcess({ build: later })
    const [row] = await database.rows<{ id: string }>("select longshore.enqueue('nap', '1') as id")
    await eventually('it has run', async () => {
      const found = await database.rows('select from longshore.finished_jobs where id = $1', [row?.id])
      return found.length > 0
    })
    await producer.close()
  })

  it('does not hold up jobs while it waits for a transaction that somebody keeps open', async () => {
    const producer = deployment.producer({ tasks: [nap] })
    await startProcess()
    const user = await database.connect()
    await user.query('begin')
    await producer.enqueue(nap, 0, { tx: user })
    const migrating = spawnCli(next, ['migrate'])
    const waitsForUser = () =>
      eventually(
        'the migration waits for the transaction',
        async () => {
          const waiting = await database.rows(
            "select from pg_stat_activity where wait_event_type = 'Lock' and query like 'alter table%'",
          )
          return waiting.length > 0
        },
        60_000,
      )
    for (let n = 1; n <= 3; n++) {
      await waitsForUser()
      expect(await producer.waitFor(await producer.enqueue(nap, n))).toMatchObject({ state: 'succeeded' })
    }
    expect(await has('note')).toBe(false)
    const impatient = await spawnCli(next, ['migrate', '--patience', '1s']).ended
    expect(impatient.code).toBe(1)
    expect(impatient.stderr).toMatch(
      new RegExp(`transaction \\(process .*\\b${user.backendPid}\\b.* of Postgres\\): end it`),
    )
    await user.query('commit')
    expect((await migrating.ended).code).toBe(0)
    expect(await has('note')).toBe(true)
  })

  it('that takes a function away which this version calls: a worker tries again until it is there', async () => {
    const producer = deployment.producer({ tasks: [nap] })
    await startProcess()
    await producer.waitFor(await producer.enqueue(nap, 0))
    await database.rows('alter function longshore.settle_and_claim rename to gone')
    const refs = await producer.enqueueMany(nap, [1, 2, 3])
    const [probe] = await database.rows('select from longshore.jobs where state <> $1', ['ready'])
    expect(probe).toBeUndefined()
    await database.rows('alter function longshore.gone rename to settle_and_claim')
    for (const ref of refs) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    expect((await deployment.runs()).map(run => run.wentTo)).toEqual(Array(4).fill('ended'))
  })
})
