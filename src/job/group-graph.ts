/**
 * Owns the rules of a group's graph: what a job may run after, and an order in which every job stands behind what it runs
 * after. Pure; whatever is wrong is found before anything is inserted.
 */
import { LongshoreError } from './errors.ts'

/** What becomes of a job when one that it is to run after does not succeed. */
export type EdgePolicy = 'fail' | 'run' | 'cancel'

export const EDGE_POLICIES: readonly EdgePolicy[] = ['fail', 'run', 'cancel']

export const MOST_JOBS = 100_000
export const MOST_EDGES = 500_000
export const MOST_PARENTS = 10_000

export interface GraphJob {
  id: string
  /** What people call it. */
  label: string
  /** Whose end it waits for, by id. */
  parents: ReadonlyMap<string, EdgePolicy>
  workflow?: string
}

/**
 * The jobs, parents first, otherwise in the order given. Jobs of one workflow keep that order. `outside`: which ids
 * outside of these jobs may be parents.
 */
export function inOrder<J extends GraphJob>(
  jobs: readonly J[],
  outside: (parent: string) => boolean = () => false,
): J[] {
  checkSize(jobs)
  const numbers = new Map(jobs.map((job, number) => [job.id, number]))
  const before = jobs.map(job => {
    const found: number[] = []
    for (const parent of job.parents.keys()) {
      const number = numbers.get(parent)
      if (number !== undefined) found.push(number)
      else if (!outside(parent)) {
        throw new LongshoreError(
          'GROUP_INVALID',
          `${job.label} is to run after job ${parent}, which is not in this group: add it first, or leave it out`,
        )
      }
    }
    return found
  })
  const last = new Map<string, number>()
  for (const [number, job] of jobs.entries()) {
    if (job.workflow === undefined) continue
    const earlier = last.get(job.workflow)
    if (earlier !== undefined) before[number]?.push(earlier)
    last.set(job.workflow, number)
  }
  return parentsFirst(jobs, before)
}

function checkSize(jobs: readonly GraphJob[]): void {
  if (jobs.length > MOST_JOBS) {
    throw new LongshoreError(
      'GROUP_INVALID',
      `${jobs.length} jobs are too many for one submission, at most ${MOST_JOBS} are possible: submit it in parts with addToGroup`,
    )
  }
  let edges = 0
  for (const job of jobs) {
    edges += job.parents.size
    if (job.parents.size > MOST_PARENTS) {
      throw new LongshoreError(
        'GROUP_INVALID',
        `${job.label} is to run after ${job.parents.size} jobs, at most ${MOST_PARENTS} are possible: put jobs in between that gather some of them`,
      )
    }
  }
  if (edges > MOST_EDGES) {
    throw new LongshoreError(
      'GROUP_INVALID',
      `${edges} dependencies are too many for one submission, at most ${MOST_EDGES} are possible: put jobs in between that gather some of them`,
    )
  }
}

/** Depth first without recursion: a chain may be longer than the stack. */
function parentsFirst<J extends GraphJob>(jobs: readonly J[], before: readonly number[][]): J[] {
  const ordered: J[] = []
  const state = new Uint8Array(jobs.length) // 1 on the path, 2 done
  for (const start of jobs.keys()) {
    if (state[start] !== 0) continue
    const path = [{ at: start, next: 0 }]
    state[start] = 1
    for (let top = path.at(-1); top; top = path.at(-1)) {
      const parent = before[top.at]?.[top.next++]
      if (parent === undefined) {
        state[top.at] = 2
        ordered.push(jobs[top.at] as J)
        path.pop()
      } else if (state[parent] === 0) {
        state[parent] = 1
        path.push({ at: parent, next: 0 })
      } else if (state[parent] === 1) {
        const numbers = path.map(step => step.at)
        throw circle(jobs, [...numbers.slice(numbers.indexOf(parent)), parent])
      }
    }
  }
  return ordered
}

const MOST_SHOWN = 10

/** `path`: each runs after the next. */
function circle(jobs: readonly GraphJob[], path: readonly number[]): LongshoreError {
  const labels = path.map(number => jobs[number]?.label)
  const shown =
    labels.length > MOST_SHOWN
      ? [...labels.slice(0, MOST_SHOWN - 1), `… (${labels.length - MOST_SHOWN} more)`, ...labels.slice(-1)]
      : labels
  const byTurn = path.some((number, at) => {
    const job = jobs[number]
    const parent = jobs[path[at + 1] ?? -1]
    return job && parent && !job.parents.has(parent.id)
  })
  const hint = byTurn
    ? '; jobs of one workflow run in the order in which they were added, so add them in that order'
    : ''
  return new LongshoreError(
    'GROUP_INVALID',
    `these jobs would wait for each other for ever: ${shown.join(' runs after ')}${hint}`,
  )
}
