/**
 * Owns how an idle worker in direct mode learns of new jobs. Two ways, chosen by the rate of jobs:
 * *flowing*: it looks every 2 ms without being notified, so a busy system commits without NOTIFY;
 * *listening*: it says so in its row, and a transaction that makes a job ready rings. The poll interval is only the
 * fall-back.
 */
export interface WakeUp {
  /** Nothing is under way and a permit is free. */
  onIdle(): void
  onClaimed(jobs: number): void
  /** No permit is free: bells should go to others. */
  onFull(): void
  onRing(): void
  /** It is woken in another way, or not at all: neither look nor listen until told otherwise. Resolves when it is not notified any more. */
  rest(isToRest: boolean): Promise<void>
  stop(): void
}

export const FLOW_LOOK_MS = 2
const WINDOW_MS = 100
/** Below this many jobs in a window a flowing worker goes to listen: 100 a second. */
const FEW_JOBS = 10
/** From this many bells in a window on a listening worker looks by itself: 200 a second. */
const MANY_RINGS = 20
/** A commit that looked for listeners just before we were one shows itself by then. */
const SECOND_LOOK_MS = 25
/** Where a transaction is open that may have looked before, the next look comes when three times as long has passed. */
const LATER_LOOKS = 2
/** A worker that polls so often finds late commits by polling, so it does not ask for open transactions. */
const OFTEN_MS = 1000

export function createWakeUp(options: {
  pollIntervalMs: number
  /** Write the worker's row; resolves when committed. */
  setListening: (isListening: boolean) => Promise<void>
  /** Look for jobs now. */
  look: () => void
  /** How long to wait between looks while jobs flow. Default 2 ms. */
  flowLookMs?: () => number
  /** How long it may be until the next look, whatever the poll interval is. */
  lookWithinMs?: () => number
  /** Whether a transaction is open that may have looked for listeners before this one was. Asked only while it listens. */
  mayCommitLate?: () => Promise<boolean>
  onError: (error: unknown) => void
}): WakeUp {
  let mode: 'flowing' | 'switching' | 'listening' = 'flowing'
  let timer: NodeJS.Timeout | undefined
  let laterLook: NodeJS.Timeout | undefined
  let windowStart = performance.now()
  let count = 0
  let isStopped = false
  let isResting = false

  /** Jobs while flowing, bells while listening. Returns the count of a window that has just ended. */
  const turnWindow = (): number | undefined => {
    if (performance.now() - windowStart <= WINDOW_MS) return undefined
    const ended = count
    windowStart = performance.now()
    count = 0
    return ended
  }

  let switched: Promise<void> = Promise.resolve()
  const switchTo = (next: 'flowing' | 'listening'): Promise<void> => {
    mode = 'switching'
    switched = options
      .setListening(next === 'listening')
      .then(() => {
        mode = next
      })
      .catch(error => {
        mode = 'flowing'
        options.onError(error)
      })
      .then(() => {
        if (isStopped) return
        if (isResting && mode === 'listening') return switchTo('flowing')
        windowStart = performance.now()
        count = 0
        options.look()
        if (mode !== 'listening') return
        // Asked at once, so that it tells of transactions of now, and not of those of the second look.
        mayCommitLate()
        lookLater(SECOND_LOOK_MS, windowStart)
      })
    return switched
  }

  const lookLater = (afterMs: number, since: number) => {
    clearTimeout(laterLook)
    laterLook = setTimeout(async () => {
      // Before the look: what has ended by now is seen by it.
      const isToGoOn = await mayCommitLate()
      if (isStopped || isResting || mode !== 'listening') return
      options.look()
      if (isToGoOn) lookLater(LATER_LOOKS * (performance.now() - since), since)
    }, afterMs)
  }

  const mayCommitLate = async (): Promise<boolean> => {
    if (!options.mayCommitLate || options.pollIntervalMs <= OFTEN_MS) return false
    try {
      return await options.mayCommitLate()
    } catch (error) {
      options.onError(error)
      return true
    }
  }

  return {
    onIdle() {
      clearTimeout(timer)
      if (isStopped || isResting) return
      if (mode === 'flowing' && (turnWindow() ?? FEW_JOBS) < FEW_JOBS) {
        switchTo('listening')
        return
      }
      const flowLookMs = options.flowLookMs?.() ?? FLOW_LOOK_MS
      const pollMs = Math.min(options.pollIntervalMs, options.lookWithinMs?.() ?? options.pollIntervalMs)
      timer = setTimeout(options.look, mode === 'flowing' ? flowLookMs : pollMs)
    },
    onClaimed(jobs) {
      if (mode === 'flowing') count += jobs
    },
    onFull() {
      if (mode === 'listening' && !isStopped) switchTo('flowing')
    },
    onRing() {
      if (isStopped) return
      options.look()
      if (mode !== 'listening') return
      turnWindow()
      if (++count >= MANY_RINGS) switchTo('flowing')
    },
    async rest(isToRest) {
      isResting = isToRest
      if (!isResting) return
      clearTimeout(timer)
      clearTimeout(laterLook)
      if (mode === 'listening') switchTo('flowing')
      await switched
    },
    stop() {
      isStopped = true
      clearTimeout(timer)
      clearTimeout(laterLook)
    },
  }
}
