/** Owns how a relay's figures read in Prometheus. */
import { Gauge, Registry } from 'prom-client'
import type { RelayMetrics } from './relay-loop.ts'

export interface RelayRegistry {
  readonly contentType: string
  render(): Promise<string>
}

export function createRelayRegistry(read: () => RelayMetrics): RelayRegistry {
  const registry = new Registry()
  const gauge = (name: string, help: string, of: (metrics: RelayMetrics) => number) =>
    new Gauge({
      name: `longshore_relay_${name}`,
      help,
      registers: [registry],
      collect() {
        this.set(of(read()))
      },
    })
  gauge('is_leader', 'Whether this relay leads (1) or stands by (0)', ({ isLeader }) => Number(isLeader))
  gauge('lag_seconds', 'Age of the oldest outbox row when it was last read', ({ lagMs }) => lagMs / 1000)
  gauge('applied_total', 'Outbox rows applied since this term began', ({ applied }) => applied)
  gauge('applied_per_second', 'Outbox rows applied per second', ({ appliedPerSecond }) => appliedPerSecond)
  gauge('lost_bells_total', 'Workers woken again because a bell got lost', ({ bells }) => bells)

  gauge('stuck_groups', 'Groups that do not move although they could', ({ stuckGroups }) => stuckGroups)

  const byQueue = (name: string, help: string, of: (queue: RelayMetrics['queues'][number]) => number) =>
    new Gauge({
      name: `longshore_relay_queue_${name}`,
      help,
      labelNames: ['queue', 'generation'],
      registers: [registry],
      collect() {
        this.reset()
        for (const queue of read().queues) {
          this.set({ queue: queue.name, generation: queue.generation }, of(queue))
        }
      },
    })
  byQueue('is_live', 'Whether workers take from Redis', queue => Number(queue.isLive))
  byQueue('jobs', 'Ready jobs in Redis', queue => queue.queued)
  byQueue('taken', 'Jobs taken in Redis and not claimed yet', queue => queue.taken)
  byQueue('lanes_to_read', 'Lanes that wait to be read from Postgres', queue => queue.lanesToRead)
  return { contentType: registry.contentType, render: () => registry.metrics() }
}
