/** Events for tests to wait for, instead of time. */

export interface Gate<T = void> {
  readonly opened: Promise<T>
  open(value: T): void
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => undefined
  const opened = new Promise<T>(resolve => {
    open = resolve
  })
  return { opened, open }
}

/** Counts events and lets a test wait for the n-th. */
export function counter() {
  let count = 0
  const waiting: { at: number; resolve: () => void }[] = []
  return {
    get count() {
      return count
    },
    add() {
      count++
      for (const entry of waiting) if (entry.at <= count) entry.resolve()
    },
    reached(at: number): Promise<void> {
      if (count >= at) return Promise.resolve()
      return new Promise(resolve => waiting.push({ at, resolve }))
    },
  }
}

const LEAST_PAUSE_MS = 2
const MOST_PAUSE_MS = 20

/** Ask again and again until the answer is true: for facts that only a query can tell. */
export async function eventually(
  what: string,
  ask: () => Promise<boolean>,
  withinMs = 15_000,
): Promise<void> {
  const start = performance.now()
  while (!(await ask())) {
    const waitedMs = performance.now() - start
    if (waitedMs > withinMs) throw new Error(`it did not become true within ${withinMs} ms: ${what}`)
    // Whoever is waited for may need this very core: the longer it takes, the less often it is asked for.
    const pauseMs = Math.min(Math.max(LEAST_PAUSE_MS, waitedMs / 20), MOST_PAUSE_MS)
    await new Promise(resolve => setTimeout(resolve, pauseMs))
  }
}
