/** Owns what longshore is asked to reach, as data: of which side, in which scenario, beside whom. */

import { fleets } from '../liveness/fleets.ts'
import type { Part } from '../measure/cpu.ts'
import { knownPeers, POSTGRES_PEERS } from '../peers/known-peers.ts'

export interface Goal {
  readonly id: string
  readonly scenario: string
  /** One of the scenario's, or the processor time that a part used. */
  readonly figure: string | { readonly cores: Part }
  readonly side: string
  /** A side; or the best of several, in each round. Without it the figure itself is asked for. */
  readonly to?: string | { readonly bestOf: readonly string[]; readonly says: string }
  readonly asked: { readonly atLeast: number } | { readonly atMost: number }
  /** Every measurement has to reach it, noisy or not. Default: the median of the rounds. */
  readonly isForEach?: boolean
}

const REDIS_PATH = 'longshore'
const DIRECT = 'longshore-direct'
const BATCHED = 'graphile-worker'
const BEST_POSTGRES_PEER = { bestOf: POSTGRES_PEERS, says: 'the best Postgres peer' }
const BEST_PEER = {
  bestOf: Object.keys(knownPeers).filter(name => !knownPeers[name]?.isOurs && name !== 'floor'),
  says: 'the best peer',
}

const rate = (id: string, scenario: string, to: NonNullable<Goal['to']>, atLeast: number): Goal => ({
  id,
  scenario,
  figure: 'rate',
  side: REDIS_PATH,
  to,
  asked: { atLeast },
})

const start = (
  id: string,
  scenario: string,
  p: 'p50' | 'p99',
  to: NonNullable<Goal['to']>,
  atMost: number,
): Goal => ({
  id,
  scenario,
  figure: `start ${p}`,
  side: REDIS_PATH,
  to,
  asked: { atMost },
})

/** A variant beside another: longshore with a feature and without it, with much and with little. */
const beside = (
  id: string,
  scenario: string,
  side: string,
  to: string,
  asked: Goal['asked'],
  figure: Goal['figure'] = 'rate',
): Goal => ({
  id,
  scenario,
  figure,
  side,
  to,
  asked,
})

const alone = (id: string, scenario: string, side: string, asked: Goal['asked'], figure: string): Goal => ({
  id,
  scenario,
  figure,
  side,
  asked,
})

/** Of what grows: the most beside the least. */
const FLAT = { atMost: 1.5 }

export const goals: readonly Goal[] = [
  rate('P1', 'enqueue32', BEST_POSTGRES_PEER, 10),
  rate('P1', 'enqueue32', 'bullmq-aof-always', 1.2),
  rate('P1', 'enqueue32', 'floor', 0.75),
  rate('P1', 'enqueue256', BEST_POSTGRES_PEER, 10),
  rate('P1', 'enqueue256', 'bullmq-aof-always', 1.2),
  rate('P1', 'enqueue256', 'bullmq', 1),
  rate('P1', 'enqueue256', 'floor', 0.75),
  rate('P2', 'bulk4', BEST_PEER, 1.4),
  rate('P2', 'bulk4', 'floor', 0.6),
  rate('P3', 'drain1', BATCHED, 1.5),
  rate('P3', 'drain1', 'bullmq', 4),
  rate('P3', 'drain1', 'floor', 0.6),
  rate('P4', 'drain2', BATCHED, 1.3),
  rate('P4', 'drain2', 'floor', 0.6),
  rate('P5', 'whole', BEST_PEER, 1.5),
  rate('P5', 'whole', 'floor', 0.5),
  start('P6', 'latency', 'p50', BEST_POSTGRES_PEER, 1),
  start('P6', 'latency', 'p99', BEST_POSTGRES_PEER, 1),
  start('P6', 'latency', 'p50', 'floor', 1.25),
  start('P7', 'stream', 'p50', BEST_POSTGRES_PEER, 1),
  start('P7', 'stream', 'p99', BEST_POSTGRES_PEER, 1),
  start('P7', 'stream', 'p99', 'bullmq', 2),
  alone('P7', 'stream', REDIS_PATH, { atMost: 0 }, 'backlog'),
  {
    id: 'P7',
    scenario: 'stream',
    figure: { cores: 'postgres' },
    side: REDIS_PATH,
    to: BATCHED,
    asked: { atMost: 0.6 },
  },
  beside('P8', 'concurrency-high', 'limit 500', 'no limit', { atLeast: 0.85 }),
  beside('P8', 'concurrency-mixed', '1 of 100 limited', 'none limited', { atLeast: 0.95 }),
  beside('P9', 'constraints', 'eight tags', 'one tag', { atLeast: 0.95 }),
  beside('P9', 'unmatchable-head', 'fewer ahead', 'none ahead', { atMost: 2 }, 'claim, fresh p50'),
  beside('P10', 'graphs', 'chain', 'lone jobs (P6)', { atMost: 3 }, 'step p50'),
  beside('P11', 'idle-workers', '100 workers', '1 worker, 1,000/s', { atMost: 3 }, 'start p99'),
  beside(
    'P11',
    'idle-workers',
    '100 workers',
    '100 of graphile-worker',
    { atMost: 0.5 },
    { cores: 'postgres' },
  ),
  beside('P12', 'backlog', '500×', '1×', FLAT, 'cost'),
  beside('P12', 'backlog', '500×', '1×', FLAT, 'Redis memory'),
  beside('P12', 'history', 'long history', 'no history', FLAT, 'cost'),
  beside('P12', 'workers-balanced', '200 workers', '1 worker', FLAT, 'cost'),
  beside('P12', 'limit-keys', '1,000 keys', '1 key', FLAT, 'cost'),
  alone('P13', 'open-transaction', 'steady rate', { atLeast: 0.85 }, 'rate, last : first'),
  alone('P14', 'rebuild', 'all jobs', { atMost: 2000 }, 'first job'),
  alone('P14', 'rebuild', 'all jobs', { atMost: 15_000 }, 'window full'),
  ...['enqueue32', 'enqueue256', 'bulk4', 'drain1', 'drain2'].map(scenario =>
    beside('P15', scenario, DIRECT, BATCHED, { atLeast: 1 }),
  ),
  beside('Q6', 'drain1', DIRECT, 'floor', { atLeast: 0.6 }),
  beside('Q6', 'drain1', DIRECT, 'bullmq', { atLeast: 4 }),
  beside('Q6', 'drain2', DIRECT, 'floor', { atLeast: 0.55 }),
  beside('Q6', 'drain2', DIRECT, 'bullmq', { atLeast: 4 }),
  ...['10 tasks, jobs of all', '10 tasks, jobs of one'].flatMap(side =>
    ['cost', 'steady cost'].map(figure =>
      beside('Q7', 'ten-tasks', side, '1 task', { atMost: 1.05 }, figure),
    ),
  ),
  ...['aged-direct', 'aged-redis'].flatMap(scenario =>
    ['straight after', 'later'].flatMap(side =>
      ['idle: CPU', 'idle: transactions', 'cost', 'steady cost'].map(figure =>
        beside('Q9', scenario, side, 'fresh', { atMost: 1.2 }, figure),
      ),
    ),
  ),
  ...['10 tasks, held', '10 tasks under limits, held'].map(side =>
    alone('Q10', 'held-snapshot', side, { atMost: 1.5 }, 'claim, last : first'),
  ),
  alone('Q13', 'footprint', 'direct', { atMost: 3 }, 'held while busy'),
  alone('Q13', 'footprint', 'through Redis', { atMost: 3 }, 'held while busy'),
  ...Object.keys(fleets).map(fleet => ({
    ...alone('X10', 'liveness', fleet, { atMost: 1000 }, 'longest wait beside an idle worker'),
    isForEach: true,
  })),
]
