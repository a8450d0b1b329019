/**
 * What comes from Redis is input. Under a relay, workers and jobs that run, every kind of key is spoilt in every way, one after another:
 * each costs at most one generation of its queue, and no job waits for good, there or in another queue.
 */
import { Redis } from 'ioredis'
import { pino } from 'pino'
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask, doctor } from '../../src/index.ts'
import { rootKey } from '../../src/redis/names.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis, bringsRelays: true })
const opened: Redis[] = []
const open = () => {
  const client = new Redis(redis.server.url)
  opened.push(client)
  return client
}
afterEach(() => {
  for (const client of opened.splice(0)) client.disconnect()
})
const see = (isToRepair: boolean) =>
  doctor({ postgres: database.url, redis: redis.server.url, repair: isToRepair })

const plain = defineTask<number>({ name: 'plain' })
const limited = defineTask<number>({ name: 'limited', concurrency: 3 })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 1 })

/** The keys of a queue, by the names that the scripts use. */
interface Names {
  root: string
  of(name: string): string
  /** Lanes, the worker, and limits. */
  plain: number
  limited: number
  keyed: number
  worker: number
  limit: number
}
interface Spoiling {
  title: string
  /** The worker has nothing to do meanwhile; else it is full, and jobs wait. */
  isIdle?: true
  spoil(client: Redis, names: Names): Promise<unknown>
}

const KEYS: readonly [string, (names: Names) => string][] = [
  ['root', names => names.root],
  ...[
    'jobs',
    'held',
    'taken',
    'lanes',
    'kinds',
    'workers',
    'open',
    'idle',
    'rung',
    'slots',
    'turns',
    'low',
  ].map(name => [name, (names: Names) => names.of(name)] as [string, (names: Names) => string]),
  ...['bounded', 'spilled', 'stood'].map(
    name => [name, (names: Names) => names.of(name)] as [string, (names: Names) => string],
  ),
  ['lane', names => names.of(`lane:${names.plain}`)],
  ['lane under a limit', names => names.of(`lane:${names.limited}`)],
  ['lane with a key', names => names.of(`lane:${names.keyed}`)],
  ['facts', names => names.of(`lane-facts:${names.plain}`)],
  ['facts under a limit', names => names.of(`lane-facts:${names.limited}`)],
  ['worker', names => names.of(`worker:${names.worker}`)],
  ['queue', names => names.of(`queue:${names.worker}`)],
  ['workers of a kind', names => names.of(`workers-of:${names.plain}`)],
  ['under', names => names.of(`under:${names.limit}`)],
  ['heads', names => names.of(`heads:${names.limited}`)],
]
const named = (name: string) => KEYS.find(([key]) => key === name)?.[1] as (names: Names) => string
const inHash = (name: string, field: string | ((names: Names) => string), value: string): Spoiling => ({
  title: `${name}: ${typeof field === 'string' ? field : 'a field'} is ${JSON.stringify(value.slice(0, 30))}`,
  spoil: (client, names) =>
    client.hset(named(name)(names), typeof field === 'string' ? field : field(names), value),
})
const everyValue = (name: string, value: string): Spoiling => ({
  title: `${name}: every value is ${JSON.stringify(value)}`,
  async spoil(client, names) {
    const key = named(name)(names)
    for (const field of await client.hkeys(key)) if (field !== '') await client.hset(key, field, value)
  },
})
const inSet = (name: string, member: string): Spoiling => ({
  title: `${name}: with ${JSON.stringify(member)}`,
  spoil: (client, names) => client.sadd(named(name)(names), member),
})
const inSorted = (name: string, score: string, member: string): Spoiling => ({
  title: `${name}: with ${JSON.stringify(member.slice(0, 30))} at ${score}`,
  spoil: (client, names) => client.zadd(named(name)(names), score, member),
})
const everyScore = (name: string, score: string): Spoiling => ({
  title: `${name}: every score is ${score}`,
  async spoil(client, names) {
    const key = named(name)(names)
    for (const member of await client.zrange(key, '0', '-1')) await client.zadd(key, score, member)
  },
})
const withoutField = (name: string, field: string | ((names: Names) => string)): Spoiling => ({
  title: `${name}: a field is missing`,
  spoil: (client, names) => client.hdel(named(name)(names), typeof field === 'string' ? field : field(names)),
})
const WORKER = (names: Names) => String(names.worker)
const PLAIN = (names: Names) => String(names.plain)

const ALL: readonly Spoiling[] = [
  ...KEYS.flatMap(([name, key]): Spoiling[] => [
    {
      title: `${name}: of another type`,
      spoil: async (client, names) => {
        await client.del(key(names))
        await client.set(key(names), 'no such type')
      },
    },
    { title: `${name}: missing`, spoil: (client, names) => client.del(key(names)) },
  ]),
  ...['kinds', 'workers', 'open', 'idle', 'slots', 'worker', 'workers of a kind', 'under', 'facts'].map(
    (name): Spoiling => ({
      title: `${name}: missing beside an idle worker`,
      isIdle: true,
      spoil: (client, names) => client.del(named(name)(names)),
    }),
  ),
  ...['generation', 'epoch', 'seq', 'width', 'depth', 'window', 'strategy', 'begun'].map(field =>
    inHash('root', field, 'garbage'),
  ),
  inHash('root', 'epoch', '9007199254740991'),
  inHash('root', 'epoch', '99'),
  inHash('root', 'seq', '9007199254740991'),
  everyValue('jobs', 'garbage'),
  everyValue('jobs', '1 2 3'),
  inHash('jobs', 'no-id', '1 1 1'),
  everyValue('held', 'abc,,99'),
  inHash('taken', 'no-id', '1 0 1 1 1'),
  inHash('taken', 'no-id', 'garbage'),
  inSorted('lane', '0', 'no-id'),
  inSorted('lane', '0', 'x'.repeat(1_000_000)),
  inSorted('lane', '0', '-'.repeat(36)),
  everyScore('lane', 'inf'),
  everyScore('lane', '-7'),
  everyScore('lane', '0.5'),
  inSorted('lane under a limit', '0', 'no-id'),
  everyScore('lane with a key', '-inf'),
  inHash('facts', 'kind', 'garbage'),
  inHash('facts', 'kind', '77'),
  inHash('facts', 'limit', '77'),
  inHash('facts', 'bound-score', 'garbage'),
  inHash('facts', 'bound-score', '0'),
  inHash('facts', 'spilled', '1'),
  withoutField('facts under a limit', 'limit'),
  withoutField('facts under a limit', 'head'),
  inHash('kinds', PLAIN, '{'),
  inHash('kinds', PLAIN, '[]'),
  inHash('kinds', PLAIN, '{"task":5}'),
  inHash('workers', WORKER, '{'),
  inHash('workers', WORKER, '{"tasks":[],"tags":[],"constraintTags":[]}'),
  inHash('worker', 'bound-score', 'garbage'),
  inHash('worker', 'running', 'many'),
  inHash('worker', 'plain', 'garbage,'),
  withoutField('worker', 'plain'),
  inSorted('queue', '0', 'no-id'),
  everyScore('queue', 'inf'),
  inSet('workers of a kind', 'garbage'),
  inSorted('open', '0', 'garbage'),
  inSorted('idle', '0', 'garbage'),
  everyValue('slots', 'garbage'),
  everyValue('slots', '-5'),
  everyValue('turns', 'garbage'),
  inSet('under', 'garbage'),
  inSet('low', 'garbage'),
  inSet('low', '99999'),
  inSet('low', '99999999999999'),
  inSet('bounded', 'garbage'),
  inSet('spilled', 'garbage'),
  inSet('spilled', '77'),
  inSorted('heads', '0', 'no-id 77'),
  inSorted('heads', '0', ''),
]

const QUEUES = 6
const PERMITS = 3

describe('Redis with bytes that nobody of ours has written', () => {
  it('[X14] costs a generation of its queue, and every job runs, there and in other queues', async () => {
    const logged: { msg: string; queue?: string; level: number }[] = []
    const logger = pino({ level: 'info' }, { write: line => void logged.push(JSON.parse(line)) })
    const relay = await deployment.relay({ laneWindow: 4, queueDepth: 2, logger })
    const reader = open()
    const producer = deployment.producer({ tasks: [plain, limited, keyed], redis: redis.url })
    const [settings] = await database.rows<{ deployment: string }>(
      'select deployment from longshore.settings',
    )

    const begin = async (queue: string) => {
      const ran = counter()
      let door = gate()
      door.open()
      const run = async () => {
        await door.opened
        ran.add()
      }
      const worker = await deployment.worker({
        handlers: [plain.handle(run), limited.handle(run), keyed.handle(run)],
        queues: [queue],
        maxConcurrentTasks: PERMITS,
        // Heartbeats tell that a worker has room: a job that stands still is found by them.
        lease: '10s',
      })
      let enqueued = 0
      const enqueue = async (task: typeof plain, count: number, concurrencyKey?: string) => {
        const payloads = Array.from({ length: count }, (_, n) => n)
        await producer.enqueueMany(task, payloads, { queue, ...(concurrencyKey ? { concurrencyKey } : {}) })
        enqueued += count
      }
      const load = async () => {
        await enqueue(plain, 6)
        await enqueue(limited, 3)
        await enqueue(keyed, 2, 'key')
      }
      const allRun = (why: string) =>
        eventually(`all jobs of ${queue} run: ${why}`, async () => ran.count >= enqueued, 40_000)
      const root = rootKey(String(settings?.deployment), queue)
      const names = async (): Promise<Names> => {
        const generation = await reader.hget(root, 'generation')
        const of = (name: string) => `${root}:${generation}:${name}`
        const [row] = await database.rows<{ plain: number; limited: number; keyed: number; limit: number }>(
          `select max(l.id) filter (where l.task = 'plain') as plain,
             max(l.id) filter (where l.task = 'limited') as limited,
             max(l.id) filter (where l.task = 'keyed' and l.concurrency_key <> '') as keyed,
             (select k.id from longshore.limits k where k.task = 'limited') as limit
           from longshore.lanes l where l.queue = $1`,
          [queue],
        )
        const [row2] = await database.rows<{ id: number }>(
          'select max(id) as id from longshore.workers where $1 = any (queues) and dead_at is null',
          [queue],
        )
        return { root, of, worker: Number(row2?.id), ...(row as NonNullable<typeof row>) }
      }
      let last = 'nothing'
      const atRest = async () => {
        await eventually(`the worker of ${queue} is idle, after ${last}`, async () => {
          if (worker.path !== 'redis') return false
          return (await reader.zcard((await names()).of('idle')).catch(() => 0)) > 0
        })
      }
      return {
        queue,
        root,
        names,
        load,
        enqueue,
        allRun,
        atRest,
        async spoil({ title, isIdle, spoil }: Spoiling) {
          await atRest()
          if (!isIdle) {
            door = gate()
            await enqueue(plain, PERMITS)
            await eventually('the worker is full', async () => {
              const [row] = await database.rows<{ n: number }>(
                "select count(*)::int as n from longshore.jobs j join longshore.lanes l on l.id = j.lane where l.queue = $1 and j.state = 'running'",
                [queue],
              )
              return row?.n === PERMITS
            })
            await load()
            await eventually(`Redis is told of the jobs, after ${last}`, async () => {
              return (await database.rows('select from longshore.outbox')).length === 0
            })
          }
          await spoil(reader, await names())
          last = title
          await load()
          door.open()
          await allRun(title)
        },
      }
    }

    const queues = await Promise.all(Array.from({ length: QUEUES }, (_, n) => begin(`queue ${n}`)))
    const other = await begin('other')
    for (const one of [...queues, other]) {
      await one.load()
      await one.allRun('nothing is spoilt yet')
    }
    const before = await reader.hget(other.root, 'generation')
    let at = 0
    await Promise.all(
      queues.map(async one => {
        for (let spoiling = ALL[at++]; spoiling; spoiling = ALL[at++]) {
          await one.spoil(spoiling)
          await other.enqueue(plain, 1)
        }
      }),
    )
    await other.allRun('other queues are spoilt')
    expect(await reader.hget(other.root, 'generation')).toBe(before)
    for (const { queue } of queues) {
      const begun = relay.metrics().queues.find(({ name }) => name === queue)?.generations ?? 0
      const told = logged.filter(line => line.queue === queue && line.level >= 40)
      expect(begun, queue).toBeGreaterThan(ALL.length / QUEUES / 4)
      expect(told.length, queue).toBeGreaterThanOrEqual(begun - 1)
    }
    // Names of lanes and such are only for the doctor: what it finds in them is a finding, and a repair.
    await eventually('the doctor has it repaired', async () => (await see(true)).isHealthy)
    await deployment.atRest()
  }, 180_000)

  it('[X14] is told by the doctor, with and without a relay, and repaired by a new generation', async () => {
    const relay = await deployment.relay()
    const producer = deployment.producer({ tasks: [plain] })
    await producer.enqueueMany(plain, [1, 2, 3])
    const client = open()
    const of = async (name: string) => redis.key(database, name)
    await eventually('Redis knows the jobs', async () => (await client.hlen(await of('jobs'))) === 4)
    const generation = (await redis.root(database))?.generation
    // No step of the relay reads it.
    await client.set(await of('lanes'), 'no set')
    const found = await see(false)
    expect(found).toMatchObject({
      isHealthy: false,
      violations: [{ invariant: 11, problem: expect.stringContaining('another type of key') }],
    })
    expect(await see(true)).toMatchObject({
      isHealthy: true,
      repaired: [{ remedy: 'the relay builds the queue in Redis anew' }],
    })
    expect((await redis.root(database))?.generation).not.toBe(generation)

    await relay.stop()
    const root = await redis.rootKey(database)
    for (const [key, value] of [
      [await of('jobs'), 'no-id'],
      [await of('kinds'), '{'],
      [root, 'epoch'],
    ] as const) {
      await client.hset(key, value, value)
      expect(await see(true)).toMatchObject({
        isHealthy: false,
        violations: [{ invariant: 11, remedy: expect.stringContaining('start `longshore relay') }],
      })
    }
    await client.del(root)
    await client.set(root, 'no hash')
    expect((await see(false)).violations).toMatchObject([
      { problem: expect.stringContaining('another type') },
    ])
    await relay.start()
    await eventually('it is built anew', async () => (await client.type(root)) === 'hash')
    await deployment.worker({ handlers: [plain.handle(() => undefined)] })
    await deployment.atRest()
  })

  it('[X14] messages that do not fit are ignored by the relay and by workers', async () => {
    await deployment.relay({ laneWindow: 4 })
    const ran = counter()
    // Beside a limit a worker reads every job from Redis, where the relay has to read on.
    const worker = await deployment.worker({
      handlers: [plain.handle(() => ran.add()), limited.handle(() => ran.add())],
      maxConcurrentTasks: 2,
    })
    const producer = deployment.producer({ tasks: [plain, limited], redis: redis.url })
    await producer.enqueue(limited, 0)
    await ran.reached(1)
    const client = open()
    const [settings] = await database.rows<{ deployment: string }>(
      'select deployment from longshore.settings',
    )
    const [registered] = await database.rows<{ id: number }>('select id from longshore.workers')
    const name = `longshore:${settings?.deployment}`
    const root = await redis.rootKey(database)
    const generation = (await redis.root(database))?.generation
    const texts = [
      '',
      ' ',
      'garbage',
      Buffer.from([0xff, 0xfe, 0x00, 0x80]),
      'x'.repeat(1_000_000),
      `${root} 1,abc`,
      `${root} abc`,
      `${root} 99999999999`,
      `${root} 1,,2`,
      `${root} -1`,
      `${root} 9999,9998,2147483647`,
      `${root} anew`,
      `${root} anew garbage`,
      'garbage default',
      ' default',
      '1-abcdef default',
      `${generation} garbage`,
      `${generation} ${'-'.repeat(36)} 1 1`,
      `${generation} 01a1ec58-d093-75f0-be17-7c736085a86a 99999999999 1`,
      `${generation} 01a1ec58-d093-75f0-be17-7c736085a86a 1 99999999999999999999`,
      `${generation} 01a1ec58-d093-75f0-be17-7c736085a86a 1 1`,
    ]
    let enqueued = 1
    for (const channel of ['low', 'beat', `bell:${registered?.id}`]) {
      for (const text of texts) {
        await client.publish(`${name}:${channel}`, text)
        await producer.enqueueMany(plain, [1, 2, 3, 4, 5, 6])
        enqueued += 6
      }
      await eventually(`jobs run beside what is said on ${channel}`, async () => ran.count >= enqueued)
    }
    await eventually('jobs come through Redis', async () => worker.path === 'redis')
    expect((await redis.root(database))?.generation).toBe(generation)
    await deployment.atRest()
  })
})
