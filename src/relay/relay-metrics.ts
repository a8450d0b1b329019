/** Owns how a relay's figures read in Prometheus. */
import type { Overview } from '../postgres/read-overview.ts'
import { createMetrics, type Metrics } from '../runtime/prometheus.ts'
import { addDeploymentMetrics } from './deployment-metrics.ts'
import type { RelayMetrics } from './relay-loop.ts'

/** With those of the deployment, which any relay can tell. */
export function createRelayMetrics(
  prefix: string,
  read: () => RelayMetrics,
  readDeployment: () => Promise<Overview>,
): Metrics {
  const metrics = createMetrics(prefix)
  const gauge: Metrics['gauge'] = (name, help, of) => metrics.gauge(`relay_${name}`, help, of)
  const counter: Metrics['counter'] = (name, help, of) => metrics.counter(`relay_${name}`, help, of)
  gauge('is_leader', 'Whether this relay leads (1) or stands by (0)', () => Number(read().isLeader))
  gauge('lag_seconds', 'Age of the oldest outbox row when it was last read', () => read().lagMs / 1000)
  counter('applied_total', 'Outbox rows applied since this term began', () => read().applied)
  gauge('applied_per_second', 'Outbox rows applied per second', () => read().appliedPerSecond)
  counter('lost_bells_total', 'Workers woken again because a bell got lost', () => read().bells)
  counter(
    'ignored_hints_total',
    'Hints of producers that were not in the right form, or of a queue that is not open',
    () => read().ignoredHints,
  )
  gauge('stuck_groups', 'Groups that do not move although they could', () => read().stuckGroups)

  const byQueue = (name: string, help: string, of: (queue: RelayMetrics['queues'][number]) => number) =>
    gauge(`queue_${name}`, help, () =>
      read().queues.map(queue => ({
        labels: { queue: queue.name, generation: queue.generation },
        value: of(queue),
      })),
    )
  counter('generations_total', 'Times that a queue in Redis was built anew since this term began', () =>
    read().queues.map(queue => ({ labels: { queue: queue.name }, value: queue.generations })),
  )
  byQueue('is_live', 'Whether workers take from Redis', queue => Number(queue.isLive))
  byQueue('jobs', 'Ready jobs in Redis', queue => queue.queued)
  byQueue('taken', 'Jobs taken in Redis and not claimed yet', queue => queue.taken)
  byQueue('lanes_to_read', 'Lanes that wait to be read from Postgres', queue => queue.lanesToRead)
  addDeploymentMetrics(metrics, readDeployment)
  return metrics
}
