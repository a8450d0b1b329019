/** Owns what longshore is asked to reach, as data: of which side, in which scenario, beside whom. */

import type { Part } from './cpu.ts'
import { knownPeers, POSTGRES_PEERS } from './peers/known-peers.ts'

export interface Goal {
  readonly id: string
  readonly scenario: string
  /** One of the scenario's, or the processor time that a part used. */
  readonly figure: string | { readonly cores: Part }
  readonly side: string
  /** A side; or the best of several, in each round. Without it the figure itself is asked for. */
  readonly to?: string | { readonly bestOf: readonly string[]; readonly says: string }
  readonly asked: { readonly atLeast: number } | { readonly atMost: number }
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

/** Longshore with a feature beside longshore without it. */
const beside = (
  id: string,
  scenario: string,
  side: string,
  to: string,
  asked: Goal['asked'],
  figure = 'rate',
): Goal => ({
  id,
  scenario,
  figure,
  side,
  to,
  asked,
})

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
  { id: 'P7', scenario: 'stream', figure: 'backlog', side: REDIS_PATH, asked: { atMost: 0 } },
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
  ...['enqueue32', 'enqueue256', 'bulk4', 'drain1', 'drain2'].map(scenario =>
    beside('P15', scenario, DIRECT, BATCHED, { atLeast: 1 }),
  ),
]
