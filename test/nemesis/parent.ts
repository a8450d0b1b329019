/** What the processes of a run and the one that started them say to each other. */

/** To a process. The offset is heard by `shifted-clock.mjs`. */
export interface Orders {
  properties?: Record<string, string>
  isDrained?: boolean
  clockOffsetMs?: number
  /** How many jobs are unfinished, for producers that wait while there are many. */
  backlog?: number
  /** Producers: begin nothing more, end what is under way, and leave. */
  finish?: true
}

/** From a process. */
export interface Told {
  isRunning?: true
  rssBytes?: number
}

const TELL_MEMORY_MS = 5000

export function listenToParent(on: {
  properties?: (properties: Record<string, string>) => void
  drained?: (isDrained: boolean) => void
  backlog?: (jobs: number) => void
  finish?: () => void
}) {
  const tell = (told: Told) => {
    if (process.connected) process.send?.(told)
  }
  process.on('message', (orders: Orders) => {
    if (orders.properties) on.properties?.(orders.properties)
    if (orders.isDrained !== undefined) on.drained?.(orders.isDrained)
    if (orders.backlog !== undefined) on.backlog?.(orders.backlog)
    if (orders.finish) on.finish?.()
  })
  process.channel?.unref()
  // Nobody outlives the run.
  process.on('disconnect', () => process.exit(0))
  const life = setInterval(() => tell({ rssBytes: process.memoryUsage().rss }), TELL_MEMORY_MS)
  return {
    tell,
    /** From now on the process ends when nothing of its own holds it. */
    leave: () => clearInterval(life),
    complain: (error: unknown) => process.stderr.write(`${(error as Error).stack ?? error}\n`),
  }
}
