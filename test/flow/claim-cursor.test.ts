/** What a worker does whose claims do not begin at the start, because those are slow. `test/unit/claim-cursor.test.ts` has the rules. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const one = defineTask<number>({ name: 'one' })
const limited = defineTask<number>({ name: 'limited', concurrency: 1 })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 1 })
const LAST = 2n ** 62n

const scoreOf = async (id: string) =>
  (await database.rows<{ score: string }>('select score from longshore.jobs where id = $1', [id]))[0]?.score

const bestBefore = async (worker: { id: number }, before: bigint | string = LAST) =>
  (
    await database.rows<{ best: string | null }>('select longshore.best_before($1, $2) as best', [
      worker.id,
      before,
    ])
  )[0]?.best ?? null

/** As beside a transaction that is held open for long: reading from the start takes time. */
const SLOW_START = [
  {
    name: 'claim',
    point: 'start',
    insertion:
      'insert into journal.claims values (p_from); if p_from is null then perform pg_sleep(0.03); end if;',
  },
  { name: 'best_before', point: 'start', insertion: 'perform pg_sleep(0.03);' },
]

describe('the best job before a score', () => {
  it('[X10] is the best of the lanes of the worker, and none is at or behind the score', async () => {
    const producer = deployment.producer()
    const worker = await workByHand(database, ['one'])
    expect(await bestBefore(worker)).toBeNull()
    await producer.enqueue(limited, 1, { priority: 2000 }) // a task that it does not have
    const worse = await producer.enqueue(one, 1)
    const better = await producer.enqueue(one, 2, { priority: 5 })
    expect(await bestBefore(worker)).toBe(await scoreOf(better.id))
    expect(await bestBefore(worker, (await scoreOf(better.id)) as string)).toBeNull()
    await worker.claim(1)
    expect(await bestBefore(worker)).toBe(await scoreOf(worse.id))
  })

  it('[L7] is none that waits for a limit', async () => {
    const producer = deployment.producer()
    await producer.enqueueMany(limited, [1, 2])
    const waiting = await producer.enqueueMany(keyed, [1, 2], { concurrencyKey: 'a' })
    const worker = await workByHand(database, ['limited', 'keyed'])
    expect(await bestBefore(worker)).not.toBeNull()
    await worker.claim(10)
    await worker.claim(10) // closes what has no room
    expect(await bestBefore(worker)).toBeNull()
    const other = await producer.enqueue(keyed, 3, { concurrencyKey: 'b', priority: 1 })
    expect(await bestBefore(worker)).toBe(await scoreOf(other.id))
    expect(waiting).toHaveLength(2)
  })
})

describe('a worker whose claims from the start are slow', () => {
  it('[X10] [X12] finds a job before its cursor that did not ring, and begins no claim at the start', async () => {
    await database.rows('create table journal.claims (begun_at_score bigint)')
    await database.rows('grant usage on schema journal to public') // functions run as their owner
    const producer = deployment.producer()
    await weakened(database, SLOW_START, async () => {
      const ran: number[] = []
      await deployment.worker({
        pollInterval: '1h',
        handlers: [one.handle(job => void ran.push(job.payload))],
      })
      await producer.waitFor(await producer.enqueue(one, 1))
      await eventually(
        'a claim begins at the cursor',
        async () =>
          (await database.rows('select from journal.claims where begun_at_score is not null')).length > 0,
      )
      await eventually(
        'it listens',
        async () => (await database.rows('select from longshore.workers where listening')).length === 1,
      )
      await database.rows('truncate journal.claims')
      // So that the commit rings no worker.
      await database.rows('update longshore.workers set listening = false')
      await producer.waitFor(await producer.enqueue(one, 2, { priority: 9 }))
      expect(ran).toEqual([1, 2])
      expect(await database.rows('select from journal.claims where begun_at_score is null')).toEqual([])
    })
  })
})
