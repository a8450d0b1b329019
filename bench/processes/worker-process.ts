/**
 * A worker process: `worker-process.ts <WorkerOrder as JSON>`. Runs one peer's worker with a handler that only counts,
 * begins when it is told to, tells its parent the count while it runs and the whole report when it is told to stop.
 */
import { once } from 'node:events'
import { nowUs } from '../jobs/clock.ts'
import type { JobData } from '../jobs/job-data.ts'
import { createTally } from '../jobs/tally.ts'
import { knownPeer } from '../peers/known-peers.ts'
import type { Surroundings } from '../peers/peer.ts'
import { startProfile } from '../profile/record-profile.ts'

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

export type WorkerMessage =
  | { kind: 'loaded' }
  | { kind: 'ready' }
  | { kind: 'count'; ran: number }
  | { kind: 'report'; report: WorkerReport }

const COUNT_EVERY_MS = 20
const STOP_LIMIT_MS = 5000

const order = JSON.parse(process.argv[2] ?? '') as WorkerOrder
const tell = (message: WorkerMessage, sent?: () => void) =>
  process.send?.(message, undefined, undefined, sent)

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
const counts = setInterval(() => tell({ kind: 'count', ran: tally.ran }), COUNT_EVERY_MS)
// Without its parent it has nothing to do.
process.once('disconnect', () => process.exit(1))

// Loading takes longer than many a measurement: all of them begin together.
const mayBegin = once(process, 'message')
tell({ kind: 'loaded' })
await mayBegin
const { workers: size = 1 } = order
const workers = await Promise.all(
  Array.from({ length: size }, (_, n) => peer.startWorker(onJob, order.number * size + n)),
)
const stop = () =>
  Promise.all(workers.map(worker => worker.stop())).catch(error =>
    console.error('a worker did not stop well:', error),
  )
tell({ kind: 'ready' })

process.once('message', async () => {
  if (order.stopsFirst) await stop()
  clearInterval(counts)
  if (profile && order.profileInto)
    await profile.stop(`${order.profileInto}/worker-${process.pid}.cpuprofile`)
  const report: WorkerReport = {
    firstUs,
    latenciesUs: latenciesUs.subarray(0, measured),
    seen: tally.seen,
    duplicates: tally.duplicates,
  }
  // Otherwise first the report, so that a slow stop cannot lose it.
  tell({ kind: 'report', report }, () => {
    const limit = setTimeout(() => process.exit(0), STOP_LIMIT_MS)
    void (order.stopsFirst ? Promise.resolve() : stop()).finally(() => {
      clearTimeout(limit)
      process.exit(0)
    })
  })
})
