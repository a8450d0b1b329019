import { afterEach, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { heavy } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { type Cli, spawnScript } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const processes: Cli[] = []
afterEach(async () => {
  for (const { child } of processes) child.kill('SIGKILL')
  await Promise.all(processes.splice(0).map(cli => cli.ended))
})

/** A process whose heap has so many MB. */
function start(heapMb: number, options: object): Cli {
  const cli = spawnScript(
    'test/support/heavy-worker.ts',
    [JSON.stringify({ postgres: database.urlOf('worker'), redis: '', ...options })],
    { NODE_OPTIONS: `--max-old-space-size=${heapMb}`, LONGSHORE_LOG_LEVEL: 'silent' },
  )
  processes.push(cli)
  return cli
}

const HEAP_MB = 128
/** Of 200 KB each: the thousand that a worker may run at once do not fit. */
const HEAVY = { numbers: 25_000, ms: 1000 }
const LIGHT = { numbers: 100, ms: 0 }

/** The heavy ones first. */
async function burst(jobs: number, heavyMs = HEAVY.ms) {
  const producer = deployment.producer({ tasks: [heavy] })
  for (let at = 0; at < jobs; at += 1000)
    await producer.enqueueMany(heavy, new Array(1000).fill(at < 1000 ? { ...HEAVY, ms: heavyMs } : LIGHT))
}

const left = async () =>
  (await database.rows<{ n: number }>('select count(*)::int as n from longshore.jobs'))[0]?.n ?? 0

async function figuresOf(cli: Cli): Promise<{ sizes: number[]; most: number; rss: number }> {
  cli.child.kill('SIGTERM')
  const { stdout } = await cli.ended
  return JSON.parse(stdout.trim().split('\n').at(-1) as string)
}

const MB = 1024 * 1024
describe('a worker that is short of memory', () => {
  it('[W13] [W9] takes a burst of 100,000 jobs in smaller claims, and does not fall over', async () => {
    await burst(100_000)
    const cli = start(HEAP_MB, {})
    let hasEnded = false
    cli.ended.then(() => {
      hasEnded = true
    })
    await eventually('all are done, or it is', async () => hasEnded || (await left()) === 0, 90_000)
    expect(cli.said()).not.toContain('heap out of memory')
    const { sizes, most, rss } = await figuresOf(cli)
    const reduced = sizes.filter(size => size > 0 && size <= 25).length
    process.stdout.write(
      `[W13] 100,000 jobs, 1,000 of them of 200 KB, in a heap of ${HEAP_MB} MB: most at once ${most}, ${reduced} of ${sizes.length} claims of 25 or fewer, RSS ${Math.round(rss / MB)} MB\n`,
    )
    expect(reduced).toBeGreaterThan(0)
    expect(most).toBeLessThan(700)
    expect(rss).toBeLessThan(3 * HEAP_MB * MB)
  }, 120_000)

  it('[W13] would fall over without that', async () => {
    // On a busy machine the first of them would end before the last has come.
    await burst(1000, 60_000)
    const cli = start(HEAP_MB, { memoryThreshold: 1 })
    const { code } = await cli.ended
    expect(code).not.toBe(0)
    expect(cli.said()).toContain('heap out of memory')
    expect(await left()).toBeGreaterThan(0)
    deployment.skipAudit('its jobs are left running')
  })
})
