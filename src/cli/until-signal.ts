/** Owns how a long-running command ends: the first SIGINT or SIGTERM stops it in order, the second one at once. */
export async function untilSignal(stop: () => Promise<void>): Promise<void> {
  await new Promise<void>(resolve => {
    let isStopping = false
    const onSignal = () => {
      if (isStopping) process.exit(130)
      isStopping = true
      if (process.stderr.isTTY) process.stderr.write('longshore: stopping (again to force)\n')
      resolve()
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
  })
  await stop()
}
