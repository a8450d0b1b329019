/** A worker process of a fleet: `fleet-process.ts <FleetOrder as JSON>`. Notes when each job's handler began and ended. */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../jobs/clock.ts'
import type { Surroundings } from '../peers/peer.ts'
import { obeyParent } from '../processes/obey-parent.ts'
import type { Fleet, FleetJob } from './fleet.ts'

type Longshore = typeof import('../../src/index.ts')

export interface FleetOrder {
  readonly surroundings: Surroundings
  readonly fleet: Fleet
  /** Which of the fleet's workers this is. */
  readonly number: number
}

/** In the order in which they ended. */
export interface FleetReport {
  readonly seqs: readonly number[]
  readonly beginsUs: readonly number[]
  readonly endsUs: readonly number[]
}

const { surroundings, fleet, number } = JSON.parse(process.argv[2] ?? '') as FleetOrder
const longshore: Longshore = await import(`${surroundings.longshore}/dist/index.js`)
const own = fleet.workers[number]
if (!own) throw new Error(`the fleet has no worker ${number}`)

const seqs: number[] = []
const beginsUs: number[] = []
const endsUs: number[] = []

await obeyParent<FleetReport>({
  ran: () => seqs.length,
  report: () => ({ seqs, beginsUs, endsUs }),
  async begin() {
    const { postgres, redis } = surroundings
    const { tasks, permits, queues, tags, properties } = own
    const worker = longshore.createWorker({
      postgres,
      ...(redis === undefined ? {} : { redis }),
      ...(queues ? { queues } : {}),
      ...(tags ? { tags } : {}),
      ...(properties ? { properties } : {}),
      maxConcurrentTasks: permits,
      handlers: fleet.tasks
        .filter(({ name }) => tasks.includes(name))
        .map(task =>
          longshore.defineTask<FleetJob>(task).handle(async ({ payload }) => {
            const beginUs = nowUs()
            await pause(payload.runMs)
            seqs.push(payload.seq)
            beginsUs.push(beginUs)
            endsUs.push(nowUs())
          }),
        ),
    })
    await worker.start()
    return () => worker.stop()
  },
})
