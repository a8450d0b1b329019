import { describe, expect, it } from 'vitest'
import { defineTask, type JobRef } from '../../src/index.ts'
import { scriptNamed } from '../../src/redis/scripts.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { endAtBarrier, standsAtBarrier } from '../support/locks.ts'
import { useRedis } from '../support/own-redis.ts'
import { noops } from '../support/process-tasks.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })
const startProcess = useWorkerProcesses(database, deployment)

const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
// One entry is always there.
const size = async (name: string) => Number(await redis.command('HLEN', await redis.key(database, name))) - 1

describe('jobs that were taken in Redis and not claimed in Postgres', () => {
  it('[S10] [D8] a worker dies after take, before claim: they are offered again, no attempt and no rescue used', async () => {
    const producer = deployment.producer({ tasks: [noop] })
    const doomed = await startProcess({ lease: '2s' })
    const blocker = await database.connect()
    let refs: JobRef[] = []
    const pause = { name: 'settle_and_claim', point: 'start', insertion: pauseAt(4712) }
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock(4712)')
      refs = await producer.enqueueMany(noop, numbers(5))
      await eventually('it has taken them', async () => (await size('taken')) > 0)
      await doomed.kill()
      await endAtBarrier(database, 'settle_and_claim')
    })
    await blocker.query('select pg_advisory_unlock(4712)')
    expect(await database.rows("select from longshore.jobs where state = 'ready'")).toHaveLength(5)
    await eventually('Redis offers all of them again', async () => {
      return (await size('taken')) === 0 && (await size('jobs')) === 5
    })
    await deployment.worker({ handlers: [noop.handle(() => undefined)] })
    await deployment.atRest({ enqueued: refs })
    expect(
      await database.rows('select distinct state, attempts, rescues from longshore.finished_jobs'),
    ).toEqual([{ state: 'succeeded', attempts: 1, rescues: 0 }])
    expect(await deployment.runs()).toHaveLength(5)
    await eventually('Redis holds nothing of them', async () => {
      return (await size('taken')) === 0 && (await size('jobs')) === 0
    })
  })

  it('[L7] a worker tells soon that it has claimed a job under a limit, and not with its next take', async () => {
    const limited = defineTask<number>({ name: 'limited', concurrency: 1 })
    const leave = gate()
    await deployment.worker({ handlers: [limited.handle(() => leave.opened)] })
    const refs = await deployment.producer({ tasks: [limited] }).enqueueMany(limited, [1, 2])
    // Else the relay would count its slot twice, and whoever waits for it would not be woken when it is freed.
    await eventually('the first one runs, and Redis knows', async () => {
      const running = await database.rows("select from longshore.jobs where state = 'running'")
      return running.length === 1 && (await size('taken')) === 0
    })
    leave.open()
    await deployment.atRest({ enqueued: refs })
  })

  it('[S10] [D8] a worker that was taken for dead meanwhile puts them back, before the audit misses them', async () => {
    const producer = deployment.producer({ tasks: [noop] })
    await deployment.worker({ handlers: [noop.handle(() => undefined)] })
    const blocker = await database.connect()
    const pause = (name: string, lock: number) => ({ name, point: 'start', insertion: pauseAt(lock) })
    const pauses = [pause('settle_and_claim', 4712), pause('read_lane', 4713), pause('register_worker', 4713)]
    await weakened(database, pauses, async () => {
      await blocker.query('select pg_advisory_lock(4712), pg_advisory_lock(4713)')
      await producer.enqueueMany(noop, numbers(5))
      await eventually('it has taken them', async () => (await size('taken')) === 5)
      await standsAtBarrier(database, 'read_lane')
      await database.rows('update longshore.workers set dead_at = now()')
      await blocker.query('select pg_advisory_unlock(4712)')
      await eventually('Redis offers all of them again', async () => {
        return (await size('taken')) === 0 && (await size('jobs')) === 5
      })
      await blocker.query('select pg_advisory_unlock(4713)')
    })
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(5)
  })

  it('[S10] the reply to the take is lost: they run once, and Redis forgets that they were taken', async () => {
    const task = defineTask<number>({ name: 'anything' })
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 0)
    await done.reached(1)
    const lost = redis.proxy.loseReplyTo(scriptNamed('take').sha)
    await producer.enqueueMany(task, numbers(20))
    await lost
    await done.reached(21)
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueueMany(task, numbers(20))
    await done.reached(41)
    await eventually('Redis holds nothing of them', async () => {
      return (await size('taken')) === 0 && (await size('jobs')) === 0
    })
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(41)
  })
})
