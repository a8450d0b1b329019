/**
 * Owns the child's side of a worker process: says when its code is loaded, begins when it is told to, tells its count while it runs,
 * and its report when it is told to stop.
 */
import { once } from 'node:events'

export type WorkerMessage<Report> =
  | { kind: 'loaded' }
  | { kind: 'ready' }
  | { kind: 'count'; ran: number }
  | { kind: 'report'; report: Report }

export interface Obedient<Report> {
  /** Resolves when it takes jobs, to what ends that. */
  begin(): Promise<() => Promise<unknown>>
  ran(): number
  report(): Report | Promise<Report>
  /** Report once it has stopped. Default: before, so that a slow stop cannot lose the report. */
  readonly stopsFirst?: boolean | undefined
}

const COUNT_EVERY_MS = 20
const STOP_LIMIT_MS = 5000

export async function obeyParent<Report>({
  begin,
  ran,
  report,
  stopsFirst = false,
}: Obedient<Report>): Promise<void> {
  const tell = (message: WorkerMessage<Report>, sent?: () => void) =>
    process.send?.(message, undefined, undefined, sent)
  const counts = setInterval(() => tell({ kind: 'count', ran: ran() }), COUNT_EVERY_MS)
  // Without its parent it has nothing to do.
  process.once('disconnect', () => process.exit(1))

  // Loading takes longer than many a measurement: all of them begin together.
  const mayBegin = once(process, 'message')
  tell({ kind: 'loaded' })
  await mayBegin
  const end = await begin()
  const stop = () => end().catch(error => console.error('a worker did not stop well:', error))
  tell({ kind: 'ready' })

  await once(process, 'message')
  if (stopsFirst) await stop()
  clearInterval(counts)
  tell({ kind: 'report', report: await report() }, () => {
    const limit = setTimeout(() => process.exit(0), STOP_LIMIT_MS)
    void (stopsFirst ? Promise.resolve() : stop()).finally(() => {
      clearTimeout(limit)
      process.exit(0)
    })
  })
}
