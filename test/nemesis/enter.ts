/** Owns who plays in a run, and what each process begins with. */
import { join } from 'node:path'
import type { TheCast } from './cast.ts'
import type { Circumstances } from './faults.ts'
import type { Cast } from './plan.ts'
import type { ProduceOptions } from './produce.ts'
import type { RelayProcessOptions } from './relay.ts'
import type { Stage } from './stage.ts'
import type { WorkOptions } from './work.ts'

export interface Size {
  workers: number
  relays: number
  producers: number
}

export const FULL_SIZE: Size = { workers: 4, relays: 2, producers: 3 }
const USERS = 3
/** One relay keeps less in Redis than there is to do, so that windows move and lanes are left to Postgres. */
const SMALL = { laneWindow: 40, queueDepth: 8 }
const LEASE_MS = 4000

/** `isLong`: one of each kind is never ended, so that its memory can be watched. */
export function rolesOf(size: Size, isLong: boolean): Cast {
  const slots = (kind: string, count: number) => Array.from({ length: count }, (_, n) => `${kind}-${n}`)
  return {
    workers: slots('worker', size.workers),
    relays: slots('relay', size.relays),
    producers: slots('producer', size.producers),
    spared: isLong ? ['worker-0', 'relay-0', 'producer-0'] : [],
  }
}

/** Everybody takes their place. */
export function enter(
  stage: Stage,
  cast: TheCast,
  roles: Cast,
  circumstances: Circumstances,
  seed: number,
  folder: string,
): void {
  const stores = (slot: string) => ({
    postgres: stage.link(slot, 'postgres').url,
    redis: stage.link(slot, 'redis').url,
  })
  const begin = (slot: string, script: string, make: (name: string) => object) =>
    cast.begin({
      slot,
      script: `test/nemesis/${script}`,
      options: make,
      clockOffsetMs: () => circumstances.clocks.get(slot) ?? 0,
    })
  for (const slot of roles.relays)
    begin(
      slot,
      'relay.ts',
      () => ({ ...stores(slot), ...(slot === roles.relays[0] ? SMALL : {}) }) satisfies RelayProcessOptions,
    )
  for (const slot of roles.workers)
    begin(
      slot,
      'work.ts',
      name =>
        ({
          name,
          ...stores(slot),
          lease: LEASE_MS,
          properties: circumstances.properties.get(slot) ?? {},
          limits: circumstances.limits,
          effectLog: join(folder, 'effects', `${name}.jsonl`),
        }) satisfies WorkOptions,
    )
  for (const [at, slot] of roles.producers.entries()) {
    let starts = 0
    begin(slot, 'produce.ts', name => {
      const { postgres, redis } = stores(slot)
      return {
        name,
        seed: seed + 1000 * at + starts++,
        postgres,
        // One of them needs Postgres only, as most do.
        ...(at === 0 ? {} : { redis }),
        journal: join(folder, 'journals', `${name}.jsonl`),
        users: USERS,
      } satisfies ProduceOptions
    })
  }
}
