/**
 * Owns which lanes this producer knows to exist. Outside a caller's transaction lanes are made before their first job, one at a time:
 * enqueues that make one each would leave twins, which cost every later claim.
 */
import type { Shape } from '../job/enqueue-options.ts'
import type { Pool } from '../postgres/connect.ts'
import { makeLanes } from '../postgres/enqueue-jobs.ts'
import type { patient } from '../postgres/unavailable.ts'

export interface KnownLanes {
  has(shape: Shape): boolean
  /** Make those that are not known. */
  ensure(shapes: Iterable<Shape>): Promise<void>
}

const MOST_KNOWN = 10_000

export function createKnownLanes(
  pool: Pool,
  schema: string,
  patiently: ReturnType<typeof patient>,
): KnownLanes {
  const known = new Map<string, Promise<void> | 'made'>()
  const has = (shape: Shape) => known.get(laneOf(shape)) === 'made'

  /** Calls share a try. */
  const makeMissing = async (needed: ReadonlyMap<string, Shape>) => {
    const underWay = [...needed.keys()].map(lane => known.get(lane))
    const missing = [...needed].filter(([lane]) => !known.has(lane))
    if (missing.length > 0) {
      if (known.size + missing.length > MOST_KNOWN) known.clear()
      const shapes = missing.map(([, shape]) => shape)
      const making = makeLanes(pool, schema, shapes).then(
        () => {
          for (const [lane] of missing) known.set(lane, 'made')
        },
        error => {
          for (const [lane] of missing) known.delete(lane)
          throw error
        },
      )
      for (const [lane] of missing) known.set(lane, making)
      underWay.push(making)
    }
    await Promise.all(underWay)
  }

  return {
    has,
    async ensure(shapes) {
      const needed = new Map<string, Shape>()
      for (const shape of shapes) if (!has(shape)) needed.set(laneOf(shape), shape)
      if (needed.size > 0) await patiently(() => makeMissing(needed))
    },
  }
}

const laneOf = ({ queue, task, tag, constraintTag, concurrencyKey = '' }: Shape) =>
  `${queue}\n${task}\n${tag}\n${constraintTag}\n${concurrencyKey}`
