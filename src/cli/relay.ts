/** `longshore relay`: run the sidecar. */
import { type Command, Option } from 'commander'
import { createRelay, type Relay, type RelayOptions } from '../relay/create-relay.ts'
import { createRelayRegistry } from '../relay/relay-metrics.ts'
import { createLogger } from '../runtime/logger.ts'
import { serveMetrics } from '../runtime/metrics-server.ts'
import { addDatabaseOptions, addRedisOption, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { addScheduleOptions } from './schedule-options.ts'
import { untilSignal } from './until-signal.ts'

type Options = DatabaseOptions &
  Pick<RelayOptions, 'scheduleMode' | 'balanceStrategy' | 'fanoutWidth' | 'queueDepth' | 'laneWindow'> & {
    redisUrl?: string
    metricsPort?: number
    metricsHost?: string
  }

export function addRelayCommand(program: Command): void {
  const command = program
    .command('relay')
    .description(
      'run the sidecar: due jobs, rescue, history, and with Redis the dispatch; several may run, one leads',
    )
  addScheduleOptions(command)
    .option('--queue-depth <n>', "copies of jobs in one worker's queue (default 100)", Number)
    .option('--lane-window <n>', 'ready jobs of one lane that Redis holds (default 4000)', Number)
    .addOption(
      new Option(
        '--metrics-port <port>',
        'serve Prometheus metrics at http://127.0.0.1:<port>/metrics; 0: any port',
      )
        .env('LONGSHORE_METRICS_PORT')
        .argParser(Number),
    )
    .option('--metrics-host <address>', 'the address to serve metrics on (default: loopback only)')
  addRedisOption(addDatabaseOptions(command)).action(async (options: Options) => {
    const { databaseUrl, redisUrl, metricsPort, metricsHost, ...settings } = options
    const relay = createRelay({
      ...settings,
      postgres: requireDatabaseUrl(options),
      ...(redisUrl ? { redis: redisUrl } : {}),
      logger: createLogger('longshore relay'),
    })
    // First: a port that is taken must not leave a relay behind that leads.
    const server =
      metricsPort === undefined
        ? undefined
        : await serveMetrics({
            ...createRelayRegistry(() => relay.metrics()),
            port: metricsPort,
            ...(metricsHost ? { host: metricsHost } : {}),
          })
    try {
      await relay.start()
    } catch (error) {
      await server?.close()
      throw error
    }
    const progress = process.stderr.isTTY ? showRebuild(relay) : undefined
    const metrics = server ? `, metrics at ${server.url}` : ''
    await untilSignal(`longshore relay: running${metrics}`, async () => {
      clearInterval(progress)
      await server?.close()
      await relay.stop()
    })
  })
}

/** One line while queues are built anew, rewritten in place. */
function showRebuild(relay: Relay): NodeJS.Timeout {
  let isShown = false
  return setInterval(() => {
    const building = relay.metrics().queues.filter(queue => queue.lanesToRead > 0)
    if (building.length === 0 && !isShown) return
    isShown = building.length > 0
    const text = building.map(({ name, lanesToRead }) => `${name}: ${lanesToRead} lanes to read`).join(', ')
    process.stderr.write(`\r\u001b[K${isShown ? `filling Redis: ${text}` : ''}`)
  }, 200).unref()
}
