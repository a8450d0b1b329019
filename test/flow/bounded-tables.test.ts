/** Tables do not grow with what has passed through them: invariant 15, and what happens when somebody keeps Postgres from tidying up. */
import { describe, expect, it } from 'vitest'
import { defineTask, doctor } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/redis.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, {
  redis: {
    get url() {
      return redis.server.url
    },
  },
})
const plain = defineTask<number>({ name: 'plain' })
const limited = defineTask<number>({ name: 'limited', concurrency: 20, concurrencyPerKey: 2 })

/** Those that hold what is under way. The history grows with what has ended, and is dropped by days. */
const TABLES = [
  'jobs',
  'outbox',
  'slot_groups',
  'limits',
  'limit_uses',
  'lane_heads',
  'workers',
  'workflows',
  'relayed',
  'leader',
]
const JOBS = 400

const run = async () => {
  await deployment.relay()
  const producer = deployment.producer({ tasks: [plain, limited] })
  let ended = 0
  const handle = () => {
    ended++
  }
  await deployment.worker({ handlers: [plain.handle(handle), limited.handle(handle)] })
  /** One more load of the same size, all of it run. Answers how large the tables are when Postgres has tidied up. */
  return async () => {
    ended = 0
    const group = producer.group()
    const first = group.add(plain, 0)
    for (let n = 1; n < 50; n++) group.add(plain, n, { after: first })
    await Promise.all([
      producer.enqueueMany(
        plain,
        Array.from({ length: JOBS }, (_, n) => n),
      ),
      ...Array.from({ length: 10 }, (_, key) =>
        producer.enqueueMany(
          limited,
          Array.from({ length: JOBS / 20 }, (_, n) => n),
          { concurrencyKey: `key ${key}` },
        ),
      ),
      producer.enqueueMany(
        plain,
        Array.from({ length: 20 }, (_, n) => n),
        { workflow: 'one after another' },
      ),
      group.submit(),
    ])
    await eventually('all have run', async () => ended === JOBS + JOBS / 2 + 20 + 50)
    await eventually(
      'nothing is left to do',
      async () =>
        (await database.rows('select from longshore.jobs union all select from longshore.outbox')).length ===
        0,
    )
    for (const table of TABLES) await database.rows(`vacuum longshore.${table}`)
    const [row] = await database.rows<{ bytes: number }>(
      `select sum(pg_total_relation_size('longshore.' || t.name))::float8 as bytes from unnest($1::text[]) as t(name)`,
      [TABLES],
    )
    return row?.bytes ?? 0
  }
}

describe('the tables', () => {
  it('stay as large as one load makes them, however many follow; an open transaction lets them grow, and doctor says so', async () => {
    const load = await run()
    await load()
    const once = await load()
    for (let n = 0; n < 2; n++) await load()
    expect(await load()).toBeLessThan(1.25 * once)

    const open = await database.connect()
    await open.query('begin isolation level repeatable read')
    await open.query('select from longshore.jobs')
    for (let n = 0; n < 2; n++) await load()
    expect(await load()).toBeGreaterThan(1.5 * once)
    await eventually('doctor has heard of it', async () => {
      const { warnings } = await doctor({ postgres: database.urlOf('reader'), maxDeadRows: 1000 })
      return warnings.some(warning => /table jobs has \d+ dead rows/.test(warning))
    })
    await open.query('rollback')
  })
})
