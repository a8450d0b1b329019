/** A worker process: `worker-process.ts <WorkerOrder as JSON>`. Runs one peer's workers with a handler that only counts. */
import { nowUs } from '../jobs/clock.ts'
import type { JobData } from '../jobs/job-data.ts'
import { createTally } from '../jobs/tally.ts'
import { knownPeer } from '../peers/known-peers.ts'
import type { Surroundings } from '../peers/peer.ts'
import { startProfile } from '../profile/record-profile.ts'
import { obeyParent } from './obey-parent.ts'

/** How many there are of a worker, and when they report. */
export interface Crowd {
  /** Workers in this process. Default one. */
  workers?: number
  /** Report once they have stopped: jobs are left, and those still running are to be counted. */
  stopsFirst?: boolean
}

export interface WorkerOrder extends Crowd {
  peer: string
  surroundings: Surroundings
  /** From 0 on, in the order they were forked. */
  number: number
  /** Jobs in all; those numbered from `measured` on only warm things up. */
  total: number
  measured: number
  /** Folder for a CPU profile. */
  profileInto?: string | undefined
}

export interface WorkerReport {
  /** When the first measured job began, see `nowUs`; 0 when none did. */
  firstUs: number
  /** From the call of enqueue to the handler, for each measured job in the order they ran. */
  latenciesUs: Float64Array
  seen: Uint8Array
  duplicates: number
}

const order = JSON.parse(process.argv[2] ?? '') as WorkerOrder
const tally = createTally(order.total)
const latenciesUs = new Float64Array(order.measured)
let firstUs = 0
let measured = 0

function onJob(data: JobData): void {
  const now = nowUs()
  if (tally.note(data.seq) && data.seq < order.measured) {
    if (firstUs === 0) firstUs = now
    latenciesUs[measured++] = now - data.t
  }
}

const open = await knownPeer(order.peer).load()
const peer = await open(order.surroundings)
const profile = order.profileInto === undefined ? undefined : await startProfile()

await obeyParent<WorkerReport>({
  stopsFirst: order.stopsFirst,
  ran: () => tally.ran,
  async begin() {
    const { workers: size = 1 } = order
    const workers = await Promise.all(
      Array.from({ length: size }, (_, n) => peer.startWorker(onJob, order.number * size + n)),
    )
    return () => Promise.all(workers.map(worker => worker.stop()))
  },
  async report() {
    if (profile && order.profileInto)
      await profile.stop(`${order.profileInto}/worker-${process.pid}.cpuprofile`)
    return {
      firstUs,
      latenciesUs: latenciesUs.subarray(0, measured),
      seen: tally.seen,
      duplicates: tally.duplicates,
    }
  },
})
