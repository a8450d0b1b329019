/** Owns the endpoint of a long-running command for metrics and health: there before it starts, gone when it has stopped. */
import type { Health } from '../runtime/health.ts'
import { type MetricsServer, serveMetrics } from '../runtime/metrics-server.ts'
import type { Exposition } from '../runtime/prometheus.ts'
import type { LongRun } from './until-signal.ts'

export function withMetrics(
  of: { prometheus(): Promise<Exposition>; health(): Promise<Health> },
  where: { metricsPort: number | undefined; metricsHost: string },
  run: LongRun,
): LongRun {
  const { metricsPort: port, metricsHost: host } = where
  if (port === undefined) return run
  let server: MetricsServer | undefined
  return {
    ...run,
    async start() {
      // First: a port that is taken must not leave behind what leads or claims.
      server = await serveMetrics({
        port,
        host,
        prometheus: () => of.prometheus(),
        health: () => of.health(),
      })
      try {
        const [first = '', ...others] = await run.start()
        return [`${first}, metrics at ${server.url}`, ...others]
      } catch (error) {
        await server.close()
        throw error
      }
    },
    async stop() {
      await run.stop()
      await server?.close()
    },
  }
}
