/**
 * Owns how the state of the whole deployment reads in Prometheus. It is read when it is scraped, at most every few seconds, however
 * many scrape. Postgres away, the last that is known is told, with how old it is.
 */
import type { Count, Overview } from '../postgres/read-overview.ts'
import type { Metrics } from '../runtime/prometheus.ts'

/** What was read last, and whether it could be read this time. */
interface Known {
  overview: Overview | undefined
  /** By `performance.now()`. */
  readAt: number
  isUp: boolean
}

const FRESH_MS = 5000
/** Prometheus gives up after ten seconds. */
const LIMIT_MS = 3000
const STATES = ['ready', 'scheduled', 'waiting', 'running'] as const
const WORKER_STATES = ['live', 'drained', 'dead'] as const

export function addDeploymentMetrics(metrics: Metrics, read: () => Promise<Overview>): void {
  const look = createLook(read)
  const gauge = (name: string, help: string, of: (overview: Overview) => Values) =>
    metrics.gauge(`deployment_${name}`, help, () => valuesOf(look, of))
  const counter = (name: string, help: string, of: (overview: Overview) => Values) =>
    metrics.counter(`deployment_${name}`, help, () => valuesOf(look, of))

  metrics.gauge(
    'deployment_up',
    'Whether Postgres told the figures below; 0: they are those of the last time',
    async () => Number((await look()).isUp),
  )
  metrics.gauge('deployment_age_seconds', 'How old the figures below are', async () => {
    const { overview, readAt } = await look()
    return overview ? [{ value: (performance.now() - readAt) / 1000 }] : []
  })
  gauge('jobs', 'Unfinished jobs by queue and state; counting ends at 10,000', ({ queues }) =>
    queues.flatMap(queue =>
      STATES.map(state => ({ labels: { queue: queue.name, state }, value: queue[state].count })),
    ),
  )
  gauge('oldest_ready_seconds', 'For how long the first of the ready jobs has been due', ({ queues }) =>
    queues.map(({ name, oldestReadyMs }) => ({
      labels: { queue: name },
      value: (oldestReadyMs ?? 0) / 1000,
    })),
  )
  gauge('overdue_seconds', 'For how long a scheduled job has been due and is not ready', ({ queues }) =>
    queues.map(({ name, overdueMs }) => ({ labels: { queue: name }, value: overdueMs / 1000 })),
  )
  counter(
    'jobs_enqueued_total',
    'Jobs enqueued, by the statistics of Postgres',
    ({ totals }) => totals.enqueued,
  )
  counter('jobs_ended_total', 'Jobs ended, by the statistics of Postgres', ({ totals }) => totals.ended)
  gauge('limit_slots_used', 'Slots taken of the limits of tasks', ({ limits }) =>
    limits.flatMap(({ task, key, used }) => (key === '' ? [{ labels: { task }, value: used }] : [])),
  )
  gauge('limit_slots', 'All slots of those limits', ({ limits }) =>
    limits.flatMap(({ task, key, capacity }) =>
      key === '' && capacity !== null ? [{ labels: { task }, value: capacity }] : [],
    ),
  )
  gauge('limits_in_use', 'Limits with slots taken, those of keys too', ({ limitCount }) =>
    countOf(limitCount),
  )
  gauge('outbox_rows', 'Changes that Redis does not know of yet', ({ outbox }) => countOf(outbox.rows))
  gauge('outbox_oldest_seconds', 'How old the oldest of them is', ({ outbox }) => outbox.oldestMs / 1000)
  gauge(
    'oldest_transaction_seconds',
    'For how long the oldest transaction of the database has been open',
    ({ oldestTransactionMs }) => oldestTransactionMs / 1000,
  )
  gauge('dead_rows', 'Rows of jobs that are gone and still take room', ({ deadRows }) => deadRows)
  gauge('workers', 'Workers by state', ({ workers }) =>
    WORKER_STATES.map(state => ({
      labels: { state },
      value: workers.filter(worker => worker.state === state).length,
    })),
  )
  gauge('groups', 'Groups that have not ended', ({ groups }) => countOf(groups.unfinished))
  gauge('stuck_groups', 'Of those, groups that do not move although they could', ({ groups }) =>
    countOf(groups.stuck),
  )
  gauge('has_leader', 'Whether a process does the upkeep', ({ upkeep }) => Number(upkeep.leader !== null))
  gauge(
    'upkeep_failing_seconds',
    'For how long the first of the duties of the upkeep that fail has failed; 0: all are done',
    ({ upkeep }) => (upkeep.failing[0]?.forMs ?? 0) / 1000,
  )
}

type Values = number | { labels: Record<string, string>; value: number }[]

/** Nothing before the first time. */
async function valuesOf(look: () => Promise<Known>, of: (overview: Overview) => Values): Promise<Values> {
  const { overview } = await look()
  return overview ? of(overview) : []
}

const countOf = ({ count }: Count): number => count

/** At most one read is under way, and at most one is begun in a few seconds. Answers in time, whatever becomes of it. */
function createLook(read: () => Promise<Overview>): () => Promise<Known> {
  let overview: Overview | undefined
  let readAt = 0
  let triedAt = Number.NEGATIVE_INFINITY
  let isUp = false
  let underWay: Promise<void> | undefined
  const begin = () => {
    triedAt = performance.now()
    return read()
      .then(
        found => {
          overview = found
          readAt = performance.now()
          isUp = true
        },
        () => {
          isUp = false
        },
      )
      .finally(() => {
        underWay = undefined
      })
  }
  return async () => {
    if (!underWay && performance.now() - triedAt >= FRESH_MS) underWay = begin()
    if (underWay && !(await isInTime(underWay))) isUp = false
    return { overview, readAt, isUp }
  }
}

async function isInTime(work: Promise<void>): Promise<boolean> {
  let limit: NodeJS.Timeout | undefined
  const late = new Promise<boolean>(resolve => {
    limit = setTimeout(() => resolve(false), LIMIT_MS)
  })
  try {
    return await Promise.race([work.then(() => true), late])
  } finally {
    clearTimeout(limit)
  }
}
