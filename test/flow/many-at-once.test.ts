import { afterEach, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { nap, talk } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { type Cli, spawnScript } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const HEAP_MB = 256
/** The heap, and what Node, its threads and the buffers of connections take beside it. */
const MOST_RSS_MB = HEAP_MB + 150

let cli: Cli | undefined
afterEach(async () => {
  cli?.child.kill('SIGKILL')
  await cli?.ended
})

async function startCrowd(maxConcurrentTasks: number): Promise<Cli> {
  await deployment.needRelay()
  const options = {
    postgres: database.urlOf('worker'),
    redis: deployment.redisOf('worker'),
    maxConcurrentTasks,
  }
  cli = spawnScript('test/support/crowd-worker.ts', [JSON.stringify(options)], {
    LONGSHORE_LOG_LEVEL: 'silent',
    NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}`,
  })
  await cli.says('running.\n')
  return cli
}

/** What the worker saw in its handlers. */
async function stop({ child, ended }: Cli): Promise<{ most: number; ran: number; rssMb: number }> {
  child.kill('SIGTERM')
  const { code, stdout, stderr } = await ended
  expect(stderr).toBe('')
  expect(code).toBe(0)
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
}

const drained = () =>
  eventually(
    'nothing is unfinished',
    async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
    50_000,
  )

describe('one process with a heap of 256 MB', () => {
  it.each([1000, 5000])(
    '[W1] [W3] has %i waiting handlers inside at once, and never one more than it may',
    async most => {
      const worker = await startCrowd(most)
      const producer = deployment.producer({ tasks: [talk, nap] })
      await producer.enqueueMany(talk, numbers(most + 500))
      await worker.says('full.\n')
      // What comes meanwhile waits.
      await producer.enqueueMany(nap, numbers(500))
      worker.child.kill('SIGUSR2')
      await drained()
      const seen = await stop(worker)
      console.log(`${most} at once: ${seen.rssMb} MB`)
      expect(seen.ran).toBe(most + 1000)
      expect(seen.most).toBe(most)
      expect(seen.rssMb).toBeLessThan(MOST_RSS_MB)
    },
  )

  it('[W1] [W3] keeps a stream of short jobs below its permits', async () => {
    const worker = await startCrowd(1000)
    const producer = deployment.producer({ tasks: [nap] })
    for (const _ of numbers(10)) await producer.enqueueMany(nap, numbers(1000))
    await drained()
    const seen = await stop(worker)
    console.log(`10,000 jobs, ${seen.most} at once: ${seen.rssMb} MB`)
    expect(seen.ran).toBe(10_000)
    expect(seen.most).toBeLessThanOrEqual(1000)
    expect(seen.rssMb).toBeLessThan(MOST_RSS_MB)
  })
})
