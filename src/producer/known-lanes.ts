/**
 * Owns which lanes this producer knows to exist. Outside a caller's transaction lanes are made before their first job, one at a time:
 * enqueues that make one each would leave twins, which cost every later claim. A lane that is not used for days is deleted (see
 * `forget_lanes.sql`), so what is known is asked again after some hours.
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
/** A lane is not deleted before it has been unused for more than two days. */
const KNOWN_FOR_MS = 12 * 3_600_000

export function createKnownLanes(
  pool: Pool,
  schema: string,
  patiently: ReturnType<typeof patient>,
  clock: () => number = () => performance.now(),
): KnownLanes {
  /** Those that are being made, or until when they are known. */
  const known = new Map<string, Promise<void> | number>()
  const isKnown = (entry: Promise<void> | number | undefined) => typeof entry === 'number' && clock() < entry
  const has = (shape: Shape) => isKnown(known.get(laneOf(shape)))

  /** Calls share a try. */
  const makeMissing = async (needed: ReadonlyMap<string, Shape>) => {
    const underWay = [...needed.keys()].map(lane => known.get(lane))
    const missing = [...needed].filter(([lane]) => {
      const entry = known.get(lane)
      return entry === undefined || (typeof entry === 'number' && !isKnown(entry))
    })
    if (missing.length > 0) {
      if (known.size + missing.length > MOST_KNOWN) known.clear()
      const shapes = missing.map(([, shape]) => shape)
      const making = makeLanes(pool, schema, shapes).then(
        () => {
          for (const [lane] of missing) known.set(lane, clock() + KNOWN_FOR_MS)
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
