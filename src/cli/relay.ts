/** `longshore relay`: run the sidecar. */
import type { Command } from 'commander'
import { createRelay, type Relay } from '../relay/create-relay.ts'
import { createLogger } from '../runtime/logger.ts'
import { tellInPlace } from './output.ts'
import { addSettings, withSettings } from './settings.ts'
import { type LongRun, untilSignal } from './until-signal.ts'
import { withMetrics } from './with-metrics.ts'

export function addRelayCommand(program: Command): void {
  const command = program
    .command('relay')
    .description(
      'run the sidecar: due jobs, rescue, history, and with Redis the dispatch; several may run, one leads',
    )
  addSettings(command, 'relay').action((flags: Record<string, unknown>) =>
    withSettings('relay', flags, async settings => {
      const { databaseUrl, listenUrl, redisUrl, logLevel, metricsPort, metricsHost, ...others } = settings
      const relay = createRelay({
        ...others,
        postgres: databaseUrl,
        ...(listenUrl ? { listen: listenUrl } : {}),
        ...(redisUrl ? { redis: redisUrl } : {}),
        logger: createLogger('longshore relay', logLevel),
      })
      let progress: NodeJS.Timeout | undefined
      const run: LongRun = {
        name: 'longshore relay',
        async start() {
          await relay.start()
          progress = process.stderr.isTTY ? showRebuild(relay) : undefined
          return ['longshore relay: running']
        },
        async stop() {
          clearInterval(progress)
          await relay.stop()
        },
      }
      await untilSignal(withMetrics(relay, { metricsPort, metricsHost }, run))
    }),
  )
}

/** One line while queues are built anew, rewritten in place. */
function showRebuild(relay: Relay): NodeJS.Timeout {
  let isShown = false
  return setInterval(() => {
    const building = relay.metrics().queues.filter(queue => queue.lanesToRead > 0)
    if (building.length === 0 && !isShown) return
    isShown = building.length > 0
    const text = building.map(({ name, lanesToRead }) => `${name}: ${lanesToRead} lanes to read`).join(', ')
    tellInPlace(isShown ? `filling Redis: ${text}` : '')
  }, 200).unref()
}
