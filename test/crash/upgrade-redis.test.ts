/** A version that keeps other keys in Redis, or runs other scripts there, beside this one: Postgres has the jobs of both. */
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useNextVersion } from '../support/next-version.ts'
import { useRedis } from '../support/own-redis.ts'
import { nap } from '../support/process-tasks.ts'
import { useRelayProcesses } from '../support/relay-process.ts'
import { eventually } from '../support/signals.ts'
import { useWorkerProcesses, type WorkerProcess } from '../support/worker-process.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis, bringsRelays: true })
const startRelay = useRelayProcesses(database, deployment)
const startProcess = useWorkerProcesses(database, deployment)
const next = useNextVersion({ version: '0.2.0', servesFrom: '0.1.0', hasOtherLayout: true })
const rewritten = useNextVersion({ version: '0.2.0', servesFrom: '0.1.0', hasOtherScripts: true })

const goes = (worker: WorkerProcess, path: 'redis' | 'direct') =>
  eventually(`jobs come ${path}`, async () => worker.path === path, 30_000)

describe('a version with another layout in Redis', () => {
  it('claims directly from Postgres until its own relay leads, and then the version before does', async () => {
    const oldRelay = await startRelay()
    await oldRelay.leads()
    const old = await startProcess({ name: 'old', maxConcurrentTasks: 2 })
    expect(old.path).toBe('redis')
    expect((await next.spawnCli(['migrate'], { DATABASE_URL: database.url }).ended).code).toBe(0)
    const producer = deployment.producer({ tasks: [nap], redis: redis.url })
    const jobs = [...(await producer.enqueueMany(nap, [1, 2, 3, 4]))]
    const young = await startProcess({ name: 'new', build: next, goesDirect: true, maxConcurrentTasks: 2 })
    jobs.push(...(await producer.enqueueMany(nap, Array(100).fill(0))))
    for (const ref of jobs) await producer.waitFor(ref)
    expect(young.path).toBe('direct')

    const newRelay = await startRelay({ build: next })
    await oldRelay.kill()
    await newRelay.leads()
    await goes(young, 'redis')
    await goes(old, 'direct')
    const more = await producer.enqueueMany(nap, Array(100).fill(0))
    for (const ref of more) await producer.waitFor(ref)
    await old.stop()
    await old.ended
    await producer.waitFor(await producer.enqueue(nap, 5))

    const runs = await deployment.runs()
    expect(runs).toHaveLength(205)
    expect(runs.every(run => run.wentTo === 'ended')).toBe(true)
    const workers = new Set(runs.slice(4).map(run => run.worker))
    expect(workers).toEqual(new Set([old.id, young.id]))
  }, 120_000)
})

describe('a version with other scripts in Redis', () => {
  it('[X15] claims directly from Postgres until its own relay loads them, and says so once; the version before goes on', async () => {
    const oldRelay = await deployment.relay()
    const old = await deployment.worker({ maxConcurrentTasks: 2, handlers: [nap.handle(() => pause(10))] })
    expect((await rewritten.spawnCli(['migrate'], { DATABASE_URL: database.url }).ended).code).toBe(0)
    const young = await startProcess({ name: 'new', build: rewritten, goesDirect: true, logLevel: 'warn' })
    const COMPLAINT = 'Redis does not have the scripts of this version'
    await young.says(COMPLAINT)
    const producer = deployment.producer({ tasks: [nap], redis: redis.url })
    for (const ref of await producer.enqueueMany(nap, Array(50).fill(0))) await producer.waitFor(ref)
    expect([old.path, young.path]).toEqual(['redis', 'direct'])

    await oldRelay.stop()
    await (await startRelay({ build: rewritten })).leads()
    await goes(young, 'redis')
    await eventually('the version before too', async () => old.path === 'redis')
    for (const ref of await producer.enqueueMany(nap, Array(50).fill(0))) await producer.waitFor(ref)
    expect(young.said().split('Redis cannot be used')).toHaveLength(2)
    const runs = await deployment.runs()
    expect(new Set(runs.map(run => run.worker)).size).toBe(2)
  }, 120_000)
})
