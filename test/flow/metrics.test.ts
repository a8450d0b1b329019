/** What a worker and a relay tell Prometheus, scraped over HTTP from processes of their own. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { createWorker, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { parsePrometheus, type Scrape } from '../support/prometheus-text.ts'
import { startProxy } from '../support/proxy.ts'
import { useServed } from '../support/scrape.ts'
import { eventually, gate } from '../support/signals.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const serve = useServed()
const folder = mkdtempSync(join(tmpdir(), 'longshore-metrics-'))
const TASKS = 'test/support/measured-tasks.mjs'
let letGo = ''
let files = 0
let env: Record<string, string> = {}

beforeEach(() => {
  letGo = join(folder, String(++files))
  env = { DATABASE_URL: database.url, LET_GO: letGo }
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const ODD = 'say "hi" \\ {now}'
const task = (name: string, options = {}) => defineTask<number>({ name, ...options })
const flaky = task('flaky', { retry: { maxAttempts: 2, backoff: { type: 'fixed', delay: 0 } } })
const broken = task('broken', { retry: { maxAttempts: 1 } })
const held = task('held', { concurrency: 5 })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const ended = async (count: number) => {
  await eventually('they have ended', async () => {
    const [row] = await database.rows<{ count: number }>(
      'select count(*)::int as count from longshore.finished_jobs',
    )
    return row?.count === count
  })
}

describe('a worker', () => {
  it('[W11] counts what it has really done, under the names that are promised', async () => {
    const producer = deployment.producer()
    await producer.enqueueMany(task(ODD), numbers(7))
    await producer.enqueueMany(flaky, numbers(2))
    await producer.enqueueMany(broken, numbers(1))
    const worker = await serve(['worker', TASKS], env)
    await ended(10)
    await producer.enqueueMany(held, numbers(3))
    await eventually(
      'three are inside',
      async () => (await worker.scrape()).figure('longshore_worker_in_flight_tasks') === 3,
    )
    const begunBy = performance.now()

    const first = await worker.scrape()
    const completed = (task: string) =>
      Object.fromEntries(
        first
          .find('longshore_worker_tasks_completed_total', { task })
          .map(({ labels, value }) => [labels['outcome'], value]),
      )
    expect(completed(ODD)).toEqual({ succeeded: 7, failed: 0, retried: 0 })
    expect(completed('flaky')).toEqual({ succeeded: 2, failed: 0, retried: 2 })
    expect(completed('broken')).toEqual({ succeeded: 0, failed: 1, retried: 0 })
    expect(completed('held')).toEqual({ succeeded: 0, failed: 0, retried: 0 })
    const runs = (scrape: Scrape, task: string) =>
      scrape.figure('longshore_worker_task_duration_seconds_count', { task })
    expect([ODD, 'flaky', 'broken', 'held'].map(task => runs(first, task))).toEqual([7, 4, 1, 0])
    // Those given back for another try are claimed again.
    expect(first.figure('longshore_worker_claim_size_sum')).toBe(7 + 2 * 2 + 1 + 3)
    expect(first.figure('longshore_worker_claim_size_count')).toBe(
      first.figure('longshore_worker_claims_total'),
    )
    expect(
      ['in_flight_tasks', 'tasks_completed_total', 'task_duration_seconds', 'claims_total', 'claim_size'].map(
        name => first.families.get(`longshore_worker_${name}`)?.type,
      ),
    ).toEqual(['gauge', 'counter', 'histogram', 'counter', 'histogram'])

    const beforeEnd = performance.now()
    writeFileSync(letGo, '')
    await ended(13)
    const last = await worker.scrape()
    expect(last.figure('longshore_worker_in_flight_tasks')).toBe(0)
    expect(runs(last, 'held')).toBe(3)
    // Each was inside all the while.
    expect(
      last.figure('longshore_worker_task_duration_seconds_sum', { task: 'held' }),
    ).toBeGreaterThanOrEqual((3 * (beforeEnd - begunBy)) / 1000)
    worker.cli.child.kill('SIGTERM')
    expect(await worker.cli.ended).toMatchObject({ code: 0 })
  })

  it('[W11] tells how it fares', async () => {
    const worker = await serve(['worker', TASKS, '--max-concurrent-tasks', '40', '--max-threads', '2'], env)
    const producer = deployment.producer()
    await producer.enqueueMany(task('talk'), numbers(4))
    await ended(4)
    const figure = async (name: string, labels = {}) =>
      (await worker.scrape()).figure(`longshore_worker_${name}`, labels)
    await eventually('four lines are stored', async () => (await figure('log_lines_written_total')) === 4)
    expect(await figure('log_lines_dropped_total', { reason: 'buffer' })).toBe(0)
    expect(await figure('max_tasks')).toBe(40)
    expect(await figure('max_threads')).toBe(2)
    expect(await figure('threads_in_use')).toBe(0)
    expect(await figure('is_running')).toBe(1)
    expect(await figure('path', { path: 'direct' })).toBe(1)
    expect(await figure('path', { path: 'redis' })).toBe(0)
    const memory = await figure('memory_usage_ratio')
    expect(memory).toBeGreaterThan(0)
    expect(memory).toBeLessThanOrEqual(1)
    expect(await figure('task_duration_p99_seconds')).toBeGreaterThan(0)
    expect(await figure('heartbeat_age_seconds')).toBeLessThan(15)
    expect(await figure('is_drained')).toBe(0)
    const id = /longshore worker (\d+): running/.exec(worker.cli.said())?.[1] ?? ''
    expect(await spawnCli(['drain', id], env).ended).toMatchObject({ code: 0 })
    await eventually('it is drained', async () => (await figure('is_drained')) === 1)
  })

  it('[W11] takes another prefix, or none', async () => {
    const worker = await serve(['worker', TASKS], { ...env, LONGSHORE_METRICS_PREFIX: 'acme_' })
    const names = [...(await worker.scrape()).families.keys()]
    expect(names).toContain('acme_worker_in_flight_tasks')
    expect(names.filter(name => !name.startsWith('acme_worker_'))).toEqual([])
    const bare = await serve(['relay', '--metrics-prefix', ''], env)
    const bareNames = [...(await bare.scrape()).families.keys()]
    expect(bareNames).toEqual(expect.arrayContaining(['relay_is_leader', 'deployment_up']))
    const { code, stderr } = await spawnCli(['worker', TASKS, '--metrics-prefix', '9-'], env).ended
    expect(stderr).toContain(
      'flag --metrics-prefix must be at most 100 of a-z, A-Z, 0-9 and _, not starting with a digit; got "9-"',
    )
    expect(code).toBe(2)
  })

  it('[W11] tells the same to whoever has a server of his own', async () => {
    const entered = gate()
    const leave = gate()
    const worker = createWorker({
      postgres: database.urlOf('worker'),
      metricsPrefix: 'own_',
      handlers: [
        task('mine').handle(async () => {
          entered.open()
          await leave.opened
        }),
      ],
    })
    const figure = async (name: string) =>
      parsePrometheus((await worker.prometheus()).text).figure(`own_worker_${name}`)
    expect(await figure('is_running')).toBe(0)
    await worker.start()
    await deployment.producer().enqueue(task('mine'), 1)
    await entered.opened
    expect([await figure('is_running'), await figure('in_flight_tasks')]).toEqual([1, 1])
    leave.open()
    await worker.stop()
    expect([await figure('is_running'), await figure('in_flight_tasks')]).toEqual([0, 0])
    expect((await worker.prometheus()).contentType).toContain('text/plain')
  })
})

describe('a relay', () => {
  it('tells how the deployment is', async () => {
    const producer = deployment.producer()
    const worker = await serve(['worker', TASKS], env)
    await producer.enqueueMany(held, numbers(3))
    await producer.enqueueMany(task('nobody', { queue: 'far' }), numbers(4))
    await producer.enqueueMany(task('nobody', { queue: 'far' }), numbers(2), { delay: '1h' })
    const group = producer.group({ name: 'still open' })
    group.add(task('nobody', { queue: 'far' }), 1)
    await group.submit()
    await eventually(
      'three are inside',
      async () => (await worker.scrape()).figure('longshore_worker_in_flight_tasks') === 3,
    )
    const relay = await serve(['relay'], env)
    await eventually('it leads', async () => (await relay.scrape()).figure('longshore_relay_is_leader') === 1)
    const scrape = await relay.scrape()
    const figure = (name: string, labels = {}) => scrape.figure(`longshore_deployment_${name}`, labels)
    expect(figure('up')).toBe(1)
    expect(figure('jobs', { queue: 'far', state: 'ready' })).toBe(5)
    expect(figure('jobs', { queue: 'far', state: 'scheduled' })).toBe(2)
    expect(figure('jobs', { queue: 'default', state: 'running' })).toBe(3)
    expect(figure('oldest_ready_seconds', { queue: 'far' })).toBeGreaterThan(0)
    expect(figure('limit_slots_used', { task: 'held' })).toBe(3)
    expect(figure('limit_slots', { task: 'held' })).toBe(5)
    expect(figure('workers', { state: 'live' })).toBe(1)
    expect(figure('groups')).toBe(1)
    expect(figure('stuck_groups')).toBe(0)
    expect(figure('outbox_rows')).toBe(0)
    expect(figure('has_leader')).toBe(1)
    writeFileSync(letGo, '')
    await ended(3)
  })

  it('answers without Postgres with what it knows', async () => {
    const proxy = await startProxy(database.urlOf('relay'))
    try {
      const relay = await serve(['relay'], { ...env, DATABASE_URL: proxy.url })
      await deployment.producer().enqueueMany(task('nobody'), numbers(3))
      const jobs = (scrape: Scrape) =>
        scrape.find('longshore_deployment_jobs', { queue: 'default', state: 'ready' })[0]?.value
      await eventually('three are ready', async () => jobs(await relay.scrape()) === 3)
      const age = (scrape: Scrape) => scrape.figure('longshore_deployment_age_seconds')
      proxy.holdAll()
      await eventually(
        'it says so',
        async () => (await relay.scrape()).figure('longshore_deployment_up') === 0,
        30_000,
      )
      const scrape = await relay.scrape()
      expect(jobs(scrape)).toBe(3)
      expect(age(scrape)).toBeGreaterThan(3)
      proxy.letFlow()
      await eventually(
        'it is read again',
        async () => (await relay.scrape()).figure('longshore_deployment_up') === 1,
        30_000,
      )
    } finally {
      await proxy.close()
    }
  })
})

describe('the guide', () => {
  it('[W11] has all metrics in its table, to the letter', async () => {
    const redis = { ...env, REDIS_URL: inject('redisUrl') }
    const relay = await serve(['relay'], redis)
    const worker = await serve(['worker', TASKS], redis)
    await deployment.producer().enqueueMany(held, numbers(1))
    await eventually('every metric has a figure', async () => {
      const families = [
        ...(await relay.scrape()).families.values(),
        ...(await worker.scrape()).families.values(),
      ]
      return families.every(({ series }) => series.length > 0)
    })
    const rows = [
      ...(await worker.scrape()).families.values(),
      ...(await relay.scrape()).families.values(),
    ].map(({ name, type, help, series }) => {
      const labels = Object.keys(series[0]?.labels ?? {}).filter(label => label !== 'le')
      return `| \`${name}\` | ${type} | ${labels.map(label => `\`${label}\``).join(', ')} | ${help} |`
    })
    const lines = readFileSync('docs/guide.md', 'utf8').split('\n')
    const from = lines.indexOf('| metric | type | labels | |')
    expect(lines.slice(from + 2, from + 2 + rows.length + 1)).toEqual([...rows, ''])
    writeFileSync(letGo, '')
    await ended(1)
    // What Redis holds of it must not be missed by the next test.
    worker.cli.child.kill('SIGTERM')
    await worker.cli.ended
    relay.cli.child.kill('SIGTERM')
    await relay.cli.ended
  })
})
