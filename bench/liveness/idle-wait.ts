/**
 * Owns the verdict on a fleet's run, pure: the longest time for which a ready job waited while a worker that may run it had a free
 * permit and began nothing that comes before the job (requirement X10).
 *
 * A full limit explains a wait only as far as its slots are held by jobs that come before the waiting one, or that began before
 * it was ready: a slot that went to a worse job meanwhile should have been its own.
 *
 * Jobs of one lane wait in one line, so it is enough to look at the first of each.
 */
import { type Fleet, keyOf, mayRun } from './fleet.ts'

/** One job's life, in microseconds of the clock that all processes share. */
export interface FleetRun {
  readonly seq: number
  /** Index of its load. */
  readonly load: number
  readonly readyUs: number
  /** Infinity: not yet. */
  readonly beginUs: number
  readonly endUs: number
  /** Index of the worker that ran it. */
  readonly worker: number
}

export interface IdleWait {
  readonly ms: number
  readonly run: FleetRun
  /** The worker that stood idle. */
  readonly worker: number
}

/** Jobs that became ready so close to each other may run in either order. */
const SAME_TIME_US = 100_000

interface Lane {
  readonly limits: readonly Limit[]
  /** In the order in which they became ready. */
  readonly line: FleetRun[]
  head: number
  /** By worker: since when it could have begun the head, but for when that became ready. */
  readonly idleSinceUs: Map<number, number>
}

interface Limit {
  readonly capacity: number
  readonly holders: Set<FleetRun>
}

/** Up to `untilUs`: what has not begun by then still waits. */
export function longestIdleWait(
  fleet: Fleet,
  runs: readonly FleetRun[],
  untilUs: number,
): IdleWait | undefined {
  const lanes = lanesOf(fleet, runs)
  const running = fleet.workers.map(() => 0)
  const begun = new Set<FleetRun>()
  let longest: IdleWait | undefined

  const priorityOf = (run: FleetRun) => fleet.loads[run.load]?.priority ?? 0
  /** Whether it may go first. */
  const mayPrecede = (run: FleetRun, other: FleetRun) =>
    priorityOf(run) > priorityOf(other) ||
    (priorityOf(run) === priorityOf(other) && run.readyUs <= other.readyUs + SAME_TIME_US)
  const hasRoom = ({ capacity, holders }: Limit, run: FleetRun) => {
    let explained = 0
    for (const holder of holders) if (holder.beginUs <= run.readyUs || mayPrecede(holder, run)) explained++
    return explained < capacity
  }
  const headOf = (lane: Lane): FleetRun | undefined => {
    while (lane.head < lane.line.length && begun.has(lane.line[lane.head] as FleetRun)) lane.head++
    return lane.line[lane.head]
  }
  /** The head of a lane has waited until now, as far as this worker could have begun it. */
  const note = (lane: Lane, worker: number, head: FleetRun, nowUs: number) => {
    const sinceUs = Math.max(head.readyUs, lane.idleSinceUs.get(worker) ?? nowUs)
    const ms = (nowUs - sinceUs) / 1000
    if (ms > (longest?.ms ?? 0)) longest = { ms, run: head, worker }
  }
  /** `began`: the job that a worker begins at this moment. */
  const look = (nowUs: number, began?: FleetRun) => {
    for (const lane of lanes.values()) {
      const head = headOf(lane)
      if (!head) continue
      const isOpen = lane.limits.every(limit => hasRoom(limit, head))
      for (const worker of lane.idleSinceUs.keys()) {
        const isFree = (running[worker] ?? 0) < (fleet.workers[worker]?.permits ?? 0)
        if (isFree && isOpen) note(lane, worker, head, nowUs)
        const isProgress = began?.worker === worker && mayPrecede(began, head)
        if (!isFree || !isOpen || isProgress) lane.idleSinceUs.set(worker, nowUs)
      }
    }
  }

  for (const { atUs, kind, run } of eventsOf(runs)) {
    if (atUs > untilUs) break
    const lane = lanes.get(laneKey(fleet, run)) as Lane
    const moved = kind === 'begin' ? 1 : kind === 'end' ? -1 : 0
    // What was true until now counts up to now.
    look(atUs, kind === 'begin' ? run : undefined)
    if (moved === 0) continue
    running[run.worker] = (running[run.worker] ?? 0) + moved
    if (kind === 'begin') begun.add(run)
    for (const { holders } of lane.limits) kind === 'begin' ? holders.add(run) : holders.delete(run)
    if (kind === 'begin') look(atUs)
  }
  look(untilUs)
  return longest
}

const laneKey = (fleet: Fleet, { load, seq }: FleetRun): string => {
  const own = fleet.loads[load]
  return `${load} ${own ? (keyOf(own, seq) ?? '') : ''}`
}

function lanesOf(fleet: Fleet, runs: readonly FleetRun[]): Map<string, Lane> {
  const limits = new Map<string, Limit>()
  const limitOf = (name: string, capacity: number | undefined): Limit[] => {
    if (capacity === undefined) return []
    const limit = limits.get(name) ?? { capacity, holders: new Set() }
    limits.set(name, limit)
    return [limit]
  }
  const lanes = new Map<string, Lane>()
  for (const run of [...runs].sort((a, b) => a.readyUs - b.readyUs || a.seq - b.seq)) {
    const load = fleet.loads[run.load]
    if (!load) throw new Error(`no load ${run.load}`)
    const name = laneKey(fleet, run)
    const task = fleet.tasks.find(one => one.name === load.task)
    const key = keyOf(load, run.seq)
    const lane = lanes.get(name) ?? {
      limits: [
        ...limitOf(load.task, task?.concurrency),
        ...(key === undefined ? [] : limitOf(`${load.task} ${key}`, task?.concurrencyPerKey)),
      ],
      line: [],
      head: 0,
      idleSinceUs: new Map(
        fleet.workers.flatMap((worker, n) => (mayRun(worker, load) ? [[n, Number.NEGATIVE_INFINITY]] : [])),
      ),
    }
    lanes.set(name, lane)
    lane.line.push(run)
  }
  return lanes
}

/** A job may begin before its producer hears that it is stored. */
function eventsOf(runs: readonly FleetRun[]) {
  const ORDER = { end: 0, ready: 1, begin: 2 }
  return runs
    .flatMap(run => [
      { atUs: Math.min(run.readyUs, run.beginUs), kind: 'ready' as const, run },
      { atUs: run.beginUs, kind: 'begin' as const, run },
      { atUs: run.endUs, kind: 'end' as const, run },
    ])
    .filter(({ atUs }) => Number.isFinite(atUs))
    .sort((a, b) => a.atUs - b.atUs || ORDER[a.kind] - ORDER[b.kind])
}
