/**
 * A claim that holds slots waits for nothing that a settle holds. It asks with `skip locked`, which waits all the same where a row's new
 * version is held while its old one is looked at: between two steps inside Postgres, where no test can stop it. So here it is asked without
 * `skip locked`, which waits for the same transaction. `test/live/deadlocks.test.ts` has the real thing, by chance.
 */
import { beforeAll, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, claimedRows, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { begin, barrier } = useGuards(database, deployment)
const BARRIER = 4718
/** Its slot groups have two slots each. */
const hundred = defineTask<number>({ name: 'hundred', concurrency: 100 })
/** Made before the other: slots of both are freed in this order. */
const first = defineTask<number>({ name: 'first', concurrency: 1 })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 100 })

const CLAIM_THIS = claimedRows(
  'select * from longshore.claim($1, 1, $2, array(select id from longshore.lanes))',
)

type Call = (client: TestClient) => Promise<unknown>
interface Meeting {
  /** Stands still at the barrier, holds slot groups and wants what the settle holds. */
  claim: Call
  meanwhile?: () => Promise<void>
  /** Waits for a slot group of the claim. */
  settle: Call
}

const worker = (...tasks: string[]) => workByHand(database, tasks)
const one = async (claimed: Promise<Claimed[]>) => settling((await claimed)[0] as Claimed)

const circles: [holds: string, pause: Weakness, waits: Weakness, prepare: () => Promise<Meeting>][] = [
  [
    'a job',
    { name: 'lock_jobs', point: 'reading', insertion: `and public.stands_at(${BARRIER})` },
    { name: 'lock_jobs', guard: 'pass-over' },
    async () => {
      const [, found] = await deployment.producer({ tasks: [hundred] }).enqueueMany(hundred, [1, 2, 3])
      const [claims, settles] = [await worker('hundred'), await worker('hundred')]
      const runs = [await one(settles.claim(1))]
      return {
        claim: client => claims.claim(2, client),
        meanwhile: async () => {
          runs.push(await one(database.rows<Claimed>(CLAIM_THIS, [settles.id, [found?.id]])))
        },
        settle: client => settles.settle(runs, client),
      }
    },
  ],
  [
    'a slot group',
    { name: 'assign_slots', point: 'start', insertion: pauseAt(BARRIER) },
    { name: 'take_slots_of_each', guard: 'group-lock', replacement: 'for update' },
    async () => {
      await deployment.producer({ tasks: [hundred] }).enqueueMany(hundred, [1, 2, 3, 4, 5])
      await database.rows("select longshore.find_lane('default', 'other', 'default', 'c:')")
      // With one lane alone its slot would pass on.
      const [claims, settles] = [await worker('hundred', 'other'), await worker('hundred')]
      const runs = [await one(settles.claim(1))]
      const holder = await begin()
      await holder.query('select from longshore.slot_groups where number = 0 for update')
      const [run] = [await one(claims.claim(1)), runs.push(await one(settles.claim(1)))]
      await holder.query('rollback')
      return {
        claim: client =>
          client.query('select from longshore.settle_and_claim($1, $2, $3, null, null, 2)', [
            claims.id,
            [run.id],
            [run.token],
          ]),
        settle: client => settles.settle(runs, client),
      }
    },
  ],
  [
    'a full limit',
    { name: 'close_limit', point: 'start', insertion: pauseAt(BARRIER) },
    { name: 'close_limit', guard: 'group-locks', replacement: 'order by g.number for update' },
    async () => {
      const producer = deployment.producer({ tasks: [first, hundred] })
      const [claims, settles] = [await worker('first', 'hundred'), await worker('first', 'hundred')]
      await producer.enqueue(hundred, 1)
      const runs = [await one(settles.claim(1))]
      await producer.enqueueMany(first, [2, 3])
      runs.push(await one(settles.claim(1)))
      await producer.enqueue(hundred, 4)
      return {
        claim: client => claims.claim(2, client),
        settle: client => settles.settle(runs, client),
      }
    },
  ],
  [
    'the head of a lane with a key',
    { name: 'tidy_heads', point: 'start', insertion: pauseAt(BARRIER) },
    { name: 'tidy_heads', guard: 'relied-on', replacement: 'for update' },
    async () => {
      await deployment.producer({ tasks: [keyed] }).enqueueMany(keyed, [1, 2, 3], { concurrencyKey: 'k' })
      const [claims, settles] = [await worker('keyed'), await worker('keyed')]
      const run = await one(settles.claim(1))
      return {
        claim: client => claims.claim(1, client),
        settle: client => settles.settleOthers([{ ...run, outcome: 'retry', error: {}, delayMs: 0 }], client),
      }
    },
  ],
]

/** What became of the claim, with these functions. */
const meet = async (prepare: () => Promise<Meeting>, weaknesses: Weakness[]): Promise<string> => {
  const { claim, meanwhile, settle } = await prepare()
  const [claims, settles] = [await begin(), await begin()]
  await claims.query("set local deadlock_timeout = '20ms'")
  await settles.query("set local deadlock_timeout = '1min'")
  const end = await weakened(database, weaknesses, async () => {
    const { open } = await barrier(BARRIER)
    const claimed = underWay(claim(claims))
    await waitsForLock(database, claims)
    await meanwhile?.()
    const settled = underWay(settle(settles))
    await waitsForLock(database, settles)
    await open()
    const said = await claimed.then(
      () => 'claimed',
      (error: { code: string }) => error.code,
    )
    await claims.query('commit')
    await settled
    await settles.query('commit')
    return said
  })
  await deployment.clear()
  return end
}

describe('a claim that holds slots and a settle that waits for them', () => {
  beforeAll(async () => {
    // As `pauseAt`, inside of a statement.
    await database.rows(`
      create function public.stands_at(p_lock int) returns boolean language plpgsql set lock_timeout = 0 as $$
      begin
        perform pg_advisory_xact_lock_shared(p_lock);
        return true;
      end $$`)
  })

  it.each(circles)(
    '[X10] do not wait for each other, if the settle holds %s: the claim passes it over, or gives up',
    async (_, pause, waits, prepare) => {
      expect(await meet(prepare, [pause])).toBe('claimed')
      expect(await meet(prepare, [pause, waits])).toBe('55P03')
      const patient = { name: pause.name, setting: 'lock_timeout', value: '20s' }
      expect(await meet(prepare, [pause, waits, patient])).toBe('40P01')
    },
  )
})
