/**
 * How long do graphs and workflows take, and how much of it is ours? `npx tsx bench/graphs.ts [--direct] [--only name]`. Two
 * workers in this process, one relay. Handlers take 10 ms, all at once: what a graph takes beyond its longest path is ours.
 * No job is left behind: each shape ends with the audit.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startPostgres, startRedis } from '../src/dev/index.ts'
import {
  audit,
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  type GroupBuilder,
  type GroupJob,
  migrate,
} from '../src/index.ts'

const { values: flags } = parseArgs({
  options: { direct: { type: 'boolean', default: false }, only: { type: 'string' } },
})
const HANDLER_MS = 10
const say = (line: string) => process.stdout.write(`${line}\n`)
const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`

const step = defineTask<number>({ name: 'step' })
const nothing = defineTask<number>({ name: 'nothing' })

/** Fills a group; returns how many jobs its longest path has. */
type Fill = (group: GroupBuilder) => number

const GRAPHS: Record<string, Fill> = {
  '10,000 jobs then 1': group => {
    const many = Array.from({ length: 10_000 }, (_, n) => group.add(step, n))
    group.add(step, 0, { after: many })
    return 2
  },
  '1 job then 10,000': group => {
    const first = group.add(step, 0)
    for (let n = 0; n < 10_000; n++) group.add(step, n, { after: first })
    return 2
  },
  'chain of 1,000': group => {
    let last: GroupJob | undefined
    for (let n = 0; n < 1000; n++) last = group.add(step, n, last ? { after: last } : {})
    return 1000
  },
  'random graph of 5,000 jobs': group => random(group, 5000, 3),
  '10,000 jobs, 50,000 dependencies': group => random(group, 10_000, 5),
}

/** Each job runs after some of the 500 before it. */
function random(group: GroupBuilder, jobs: number, parents: number): number {
  let seed = 1
  const draw = (below: number) => {
    seed = (seed * 48271) % 2147483647
    return seed % below
  }
  const made: GroupJob[] = []
  const depths: number[] = []
  for (let n = 0; n < jobs; n++) {
    const after = new Set<number>()
    for (let p = 0; p < parents && n > 0; p++) after.add(Math.max(0, n - 1 - draw(500)))
    made.push(group.add(step, n, { after: [...after].map(at => made[at] as GroupJob) }))
    depths.push(1 + Math.max(0, ...[...after].map(at => depths[at] as number)))
  }
  return Math.max(...depths)
}

const [postgres, server] = await Promise.all([startPostgres({ own: true }), startRedis({ own: true })])
say(`${postgres.choice}\n${server.choice}\n${flags.direct ? 'straight from Postgres' : 'through Redis'}`)
const client = new pg.Client(postgres.url)
await client.connect()
try {
  await migrate({ postgres: postgres.url })
  const stores = { postgres: postgres.url, ...(flags.direct ? {} : { redis: server.url }) }
  const relay = createRelay(stores)
  await relay.start()
  const producer = createProducer({ postgres: postgres.url, tasks: [step, nothing] })
  let left = 0
  let onDone: () => void = () => undefined
  const handlers = [
    step.handle(() => pause(HANDLER_MS)),
    nothing.handle(() => {
      if (--left === 0) onDone()
    }),
  ]
  const settings = { maxConcurrentTasks: 10_000, handlers }
  const workers = [createWorker({ ...stores, ...settings }), createWorker({ ...stores, ...settings })]
  await Promise.all(workers.map(worker => worker.start()))
  while (!flags.direct && workers.some(worker => worker.path !== 'redis')) await pause(10)

  for (const [name, fill] of Object.entries(GRAPHS)) {
    if (flags.only && !name.includes(flags.only)) continue
    const group = producer.group({ name })
    const path = fill(group)
    const begun = performance.now()
    await group.submit()
    const submittedMs = performance.now() - begun
    const { state } = await producer.waitForGroup(group, { timeout: '10m' })
    const tookMs = performance.now() - begun
    const share = 1 - (path * HANDLER_MS) / tookMs
    const violations = await audit({ query: (text, given) => client.query(text, given) })
    say(
      `${name}: submitted in ${seconds(submittedMs)}, ${state} after ${seconds(tookMs)}; longest path ${path} jobs, ours ${Math.round(share * 100)} %; ${violations.length} violations`,
    )
    for (const { invariant, problem } of violations.slice(0, 5)) say(`  ${invariant}: ${problem}`)
  }

  const drain = async (name: string, workflow: (n: number) => string | undefined) => {
    if (flags.only && !name.includes(flags.only)) return
    const jobs = 100_000
    left = jobs
    const done = new Promise<void>(resolve => {
      onDone = resolve
    })
    const begun = performance.now()
    let next = 0
    const enqueue = async () => {
      while (next < jobs) {
        const n = next++
        const key = workflow(n)
        await producer.enqueue(nothing, n, key === undefined ? undefined : { workflow: key })
      }
    }
    await Promise.all(Array.from({ length: 1000 }, enqueue))
    const enqueuedMs = performance.now() - begun
    await done
    const tookMs = performance.now() - begun
    const violations = await audit({ query: (text, given) => client.query(text, given) })
    say(
      `${name}: enqueued in ${seconds(enqueuedMs)}, run after ${seconds(tookMs)} (${Math.round(jobs / (tookMs / 1000))} a second); ${violations.length} violations`,
    )
    for (const { invariant, problem } of violations.slice(0, 5)) say(`  ${invariant}: ${problem}`)
  }
  await drain('100,000 jobs without a workflow', () => undefined)
  await drain('10,000 workflows of 10 jobs', n => `workflow-${n % 10_000}`)
  await producer.close()
  await Promise.all(workers.map(worker => worker.stop({ deadline: 0 })))
  await relay.stop()
} finally {
  await client.end()
  await Promise.all([postgres.stop(), server.stop()])
}
