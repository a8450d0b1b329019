import { afterEach, describe, expect, it } from 'vitest'
import { openPool } from '../../src/postgres/connect.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { standsAtBarrier, waitsForLock } from '../support/locks.ts'
import { nap, noops, part, wait } from '../support/process-tasks.ts'
import { startProxy } from '../support/proxy.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0)) await end()
})
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const NOWHERE = 'postgres://127.0.0.1:1/none'
const [SETTLE, CLOSE] = [4715, 4716]

const ofLongshore = "datname = current_database() and application_name = 'longshore'"
const running = (count: number) =>
  eventually(`${count} jobs run`, async () => {
    return (await database.rows("select from longshore.jobs where state = 'running'")).length === count
  })
const finished = () =>
  database.rows('select distinct state, attempts, rescues, worker_id as worker from longshore.finished_jobs')

describe('Postgres', () => {
  it('[S10] kills the backends of a worker over and over: it keeps its life, and each job ends once, no attempt used', async () => {
    const producer = deployment.producer({ tasks: [nap] })
    const worker = await startProcess({ maxConcurrentTasks: 50 })
    const refs = await producer.enqueueMany(nap, numbers(1000))
    let kills = 0
    const hits = new Set<string>()
    await eventually('it was hit often enough', async () => {
      const rows = await database.rows<{ query: string }>(
        `select pg_terminate_backend(pid), query from pg_stat_activity
         where ${ofLongshore} and (state <> 'idle' or query like '%beat(%')`,
      )
      kills += rows.length
      for (const { query } of rows) hits.add(/longshore"?\.(\w+)/.exec(query)?.[1] ?? query)
      return kills >= 5 && hits.has('settle_and_claim') && hits.has('beat')
    })
    await deployment.atRest({ enqueued: refs })
    expect(await finished()).toEqual([{ state: 'succeeded', attempts: 1, rescues: 0, worker: worker.id }])
  })

  it('[S10] refuses connections: a worker asks again with growing pauses, and comes back by itself', async () => {
    const way = await startProxy(database.url)
    ends.push(way.close)
    const producer = deployment.producer({ tasks: [wait] })
    // Longer than this lasts, however slow the machine.
    const worker = await startProcess({ postgres: way.url, lease: '1m' })
    const refs = await producer.enqueueMany(wait, numbers(4))
    await running(4)
    const [since, dials] = [performance.now(), way.dials]
    way.leadTo(NOWHERE)
    worker.release()
    await eventually('it has asked again and again', async () => way.dials >= dials + 16)
    // Beats, the bell and settles ask for themselves, each with pauses that double.
    expect((way.dials - dials) / (performance.now() - since)).toBeLessThan(0.1)
    way.leadTo(database.url)
    await deployment.atRest({ enqueued: refs })
    expect(await finished()).toEqual([{ state: 'succeeded', attempts: 1, rescues: 0, worker: worker.id }])
  })

  it('[S10] ends a settle to resolve a deadlock: it is tried again, and the job ends once', async () => {
    await database.rows(
      "do $$ begin execute format('alter database %I set deadlock_timeout = 10', current_database()); end $$",
    )
    const deadlocks = async () =>
      (
        await database.rows<{ n: number }>(
          'select deadlocks::int as n from pg_stat_database where datname = current_database()',
        )
      )[0]?.n ?? 0
    const before = await deadlocks()
    const producer = deployment.producer({ tasks: [part] })
    const group = producer.group()
    const parent = group.add(part, { ms: 0, way: 'succeed' })
    const child = group.add(part, { ms: 0, way: 'succeed' }, { after: parent })
    const [blocker, user] = [await database.connect(), await database.connect()]
    const pause = {
      name: 'settle',
      point: 'moved',
      insertion: `set local lock_timeout = 0; ${pauseAt(SETTLE)} set local lock_timeout = '50ms';`,
    }
    const lock = (id: string) => user.query('select from longshore.jobs where id = $1 for update', [id])
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock($1)', [SETTLE])
      await startProcess()
      // It waits for as long as it takes: the settle notices.
      await user.query("set deadlock_timeout = '1h'")
      await group.submit()
      await user.query('begin')
      await lock(child.id)
      await standsAtBarrier(database, 'settle_and_claim')
      const locked = lock(parent.id)
      await waitsForLock(database, user)
      await blocker.query('select pg_advisory_unlock($1)', [SETTLE])
      await locked
    })
    await user.query('commit')
    await deployment.atRest({ enqueued: [parent, child] })
    await eventually('there was a deadlock', async () => (await deadlocks()) > before)
    expect(await finished()).toMatchObject([{ state: 'succeeded', attempts: 1, rescues: 0 }])
    expect((await deployment.runs()).map(run => run.jobId)).toEqual([parent.id, child.id])
  })

  it('[S10] breaks off a settle of many that takes too long: fewer at once get through', async () => {
    const producer = deployment.producer({ tasks: [noop] })
    const refs = await producer.enqueueMany(noop, numbers(64))
    const limited = {
      name: 'settle',
      point: 'start',
      // As a time limit of the server or a pooler would.
      insertion: 'if cardinality(p_ids) > 30 then raise query_canceled; end if;',
    }
    await weakened(database, [limited], async () => {
      const [started, all] = [counter(), gate()]
      const handler = noop.handle(async () => {
        started.add()
        await all.opened
      })
      await deployment.worker({ handlers: [handler] })
      await started.reached(64)
      all.open()
      await deployment.drained()
    })
    await deployment.atRest({ enqueued: refs })
    expect(await deployment.runs()).toHaveLength(64)
  })

  it('[S10] does not answer a rollback: its connection is given up long before calls are, and the next one works', async () => {
    const way = await startProxy(database.url)
    const pool = openPool(way.url, 1, () => undefined)
    ends.push(pool.end, way.close)
    let told = ''
    pool
      .transaction(async () => {
        way.swallow('requests')
        throw new Error('of its own')
      })
      .catch(error => {
        told = error.message
      })
    await eventually('whoever asked is told', async () => told === 'of its own')
    way.letFlow()
    await pool.transaction(tx => tx.query('select 1'))
  })

  it('[W12] [S9] answers no call of a worker: its pools are exhausted, its beats have a connection of their own', async () => {
    await database.rows('create table effects (job_id uuid not null)')
    ends.push(() => database.rows('drop table effects'))
    await deployment.worker({ handlers: [noop.handle(() => undefined)] }) // who would rescue
    const producer = deployment.producer({ tasks: [part, wait] })
    const worker = await startProcess({ lease: '2s' })
    const holder = await database.connect()
    const pauses = [
      { name: 'close_groups', point: 'start', insertion: pauseAt(CLOSE) },
      {
        name: 'settle_and_claim',
        point: 'start',
        insertion: `if p_worker = ${worker.id} then ${pauseAt(SETTLE)} end if;`,
      },
    ]
    const refs = [await producer.enqueue(wait, 0)]
    await running(1)
    await weakened(database, pauses, async () => {
      await holder.query('begin; lock table effects')
      await holder.query('select pg_advisory_lock($1)', [CLOSE])
      const group = producer.group()
      refs.push(group.add(part, { ms: 0, way: 'succeed' }))
      await group.submit()
      await standsAtBarrier(database, '.close_groups(')
      refs.push(...(await producer.enqueueMany(part, Array(8).fill({ ms: 0, way: 'complete' }))))
      await eventually('all connections for completions wait', async () => {
        const rows = await database.rows(
          `select from pg_stat_activity where ${ofLongshore} and wait_event_type = 'Lock' and query like '%effects%'`,
        )
        return rows.length === 5
      })
      await holder.query('select pg_advisory_lock($1)', [SETTLE])
      refs.push(await producer.enqueue(part, { ms: 0, way: 'succeed' }))
      // Now both connections of its pool wait.
      await standsAtBarrier(database, 'settle_and_claim')
      worker.release()
      const expiries = new Set<string>()
      await eventually('two leases have passed', async () => {
        const [row] = await database.rows<{ lives: boolean; expires: string }>(
          `select dead_at is null and expires_at > clock_timestamp() as lives, expires_at::text as expires
           from longshore.workers where id = $1`,
          [worker.id],
        )
        expect(row?.lives).toBe(true)
        return expiries.add(String(row?.expires)).size > 6
      })
      await holder.query('select pg_advisory_unlock_all()')
      await holder.query('commit')
    })
    await deployment.atRest({ enqueued: refs })
    expect(await finished()).toEqual([{ state: 'succeeded', attempts: 1, rescues: 0, worker: worker.id }])
    expect(await database.rows('select from effects')).toHaveLength(8)
  })
})
