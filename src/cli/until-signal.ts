/** Owns how a long-running command ends: the first SIGINT or SIGTERM stops it in order, the second one at once. */

/** Says `ready` once a signal would be heeded; resolves when `stop` has been done. */
export async function untilSignal(ready: string, stop: () => Promise<void>): Promise<void> {
  // Nothing else may hold the process: the stores of `longshore dev` do not.
  const hold = setInterval(() => undefined, 2 ** 30)
  await new Promise<void>(resolve => {
    let isStopping = false
    const onSignal = () => {
      if (isStopping) process.exit(130)
      isStopping = true
      if (process.stderr.isTTY)
        process.stderr.write('longshore: stopping; running jobs get 30 s (again to force)\n')
      resolve()
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
    process.stdout.write(`${ready}\n`)
  })
  clearInterval(hold)
  await stop()
}
