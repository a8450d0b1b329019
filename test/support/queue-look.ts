/** Looks at what Redis holds of a deployment, by the names that the scripts use, and counts what goes through it. */
import { Redis } from 'ioredis'
import { afterEach } from 'vitest'
import { rootKey } from '../../src/redis/names.ts'
import type { TestDatabase } from './database.ts'

export interface QueueLook {
  /** Bells so far, of all workers. */
  readonly bells: number
  /** Beats of the relay so far, of all queues. */
  readonly beats: number
  /** The keys of the present generation; undefined while there is none. */
  keys(): Promise<{ generation: string; root: string; of: (name: string) => string } | undefined>
  /** Ids in a worker's queue, in order. */
  queueOf(worker: number): Promise<string[]>
  /** How jobs are spread, as Redis knows it. */
  spread(): Promise<{ width: string; strategy: string }>
  /** Everything ready that it holds. */
  jobs(): Promise<number>
  readonly client: Redis
}

/** Closed after the test. */
export async function lookAtQueue(
  database: Pick<TestDatabase, 'rows'>,
  redisUrl: string,
  queue = 'default',
): Promise<QueueLook> {
  const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  const deployment = String(row?.deployment)
  const root = rootKey(deployment, queue)
  const client = new Redis(redisUrl)
  const ears = new Redis(redisUrl)
  opened.push(client, ears)
  let bells = 0
  let beats = 0
  ears.on('pmessage', (_pattern: string, channel: string) => {
    if (channel.endsWith(':beat')) beats++
    else bells++
  })
  await ears.psubscribe(`longshore:${deployment}:bell:*`, `longshore:${deployment}:beat`)

  const keys = async () => {
    const generation = await client.hget(root, 'generation')
    return generation === null
      ? undefined
      : { generation, root, of: (name: string) => `${root}:${generation}:${name}` }
  }
  const key = async (name: string) => (await keys())?.of(name) ?? ''
  return {
    get bells() {
      return bells
    },
    get beats() {
      return beats
    },
    keys,
    queueOf: async worker => client.zrange(await key(`queue:${worker}`), '0', '-1'),
    async spread() {
      const [width, strategy] = await client.hmget(root, 'width', 'strategy')
      return { width: String(width), strategy: String(strategy) }
    },
    // One entry is always there.
    jobs: async () => (await client.hlen(await key('jobs'))) - 1,
    client,
  }
}

const opened: Redis[] = []
afterEach(() => {
  for (const client of opened.splice(0)) client.disconnect()
})
