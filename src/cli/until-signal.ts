/**
 * Owns how a long-running command ends: the first SIGINT or SIGTERM stops it in order, the second one at once with the exit code that
 * shells give to a process that died of it.
 */
import { constants } from 'node:os'
import { print, tell } from './output.ts'

export interface LongRun {
  /** Such as `longshore worker`. */
  name: string
  /** Resolves to the lines that are said once it runs. */
  start(): Promise<string[]>
  stop(): Promise<void>
  /** What an orderly stop waits for, if anything: `running jobs get 30s`. */
  grace?: string
}

/** Resolves when it was stopped. Signals are heeded from the beginning: the first process of a container would not even die of them. */
export async function untilSignal(run: LongRun): Promise<void> {
  // Nothing else may hold the process: the stores of `longshore dev` do not.
  const hold = setInterval(() => undefined, 2 ** 30)
  let isStopping = false
  const signalled = new Promise<void>(resolve => {
    const onSignal = (signal: 'SIGINT' | 'SIGTERM') => {
      if (isStopping) {
        tell(`${run.name}: ${signal} again, ended by force`)
        process.exit(128 + constants.signals[signal])
      }
      isStopping = true
      const grace = run.grace ? `; ${run.grace}` : ''
      tell(`${run.name}: ${signal}, stopping${grace} (again to force)`)
      resolve()
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
  })
  try {
    const ready = await run.start()
    if (!isStopping) print(...ready)
    await signalled
    await run.stop()
  } finally {
    clearInterval(hold)
  }
}
