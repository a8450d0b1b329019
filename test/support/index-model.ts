/**
 * The rule of the dispatch index without Redis: homes, copies, bounds, slots, and what a take answers. Written for reading: who
 * holds a job is looked up in the queues, heads are looked up in the lanes, and in fanout a take does not look at queues at all.
 */
import type { LaneFacts, ReadyJob } from '../../src/job/ready-job.ts'
import { isBefore } from '../../src/redis/audit-index.ts'
import type { Place, Refused, Spread } from '../../src/redis/queue-index.ts'
import { START } from '../../src/redis/queue-index.ts'
import type { WorkerFacts } from './redis.ts'

interface ModelLane {
  facts: LaneFacts
  bound: Place | null
  jobs: ReadyJob[]
}

interface ModelWorker {
  id: number
  facts: WorkerFacts
  running: number
  bound: Place | null
  queue: ReadyJob[]
}

/** To how many workers a job is copied at most in fanout. */
const CROWD = 16

const byPlace = (a: Place, b: Place) => (isBefore(a, b) ? -1 : isBefore(b, a) ? 1 : 0)
const placeOf = ({ score, id }: Place): Place => ({ score, id })
const byId = (a: { id: number }, b: { id: number }) => a.id - b.id

export class IndexModel {
  readonly lanes = new Map<number, ModelLane>()
  readonly workers = new Map<number, ModelWorker>()
  readonly taken = new Map<string, { worker: number; job: ReadyJob }>()
  readonly free = new Map<number, number>()
  private turn = 0
  /** Slots by lane that are for the present take alone. */
  private spare = new Map<number, number>()

  constructor(
    private spread: Spread,
    private readonly sizes: { depth: number; window: number },
  ) {}

  register(id: number, facts: WorkerFacts): void {
    const alone = this.disconnect(id)
    const worker: ModelWorker = { id, facts, running: 0, bound: null, queue: [] }
    this.workers.set(id, worker)
    if (this.plainLanesOf(worker).some(lane => lane.jobs.length > 0)) worker.bound = START
    for (const job of alone) this.copy(job)
  }

  unregister(id: number): string[] {
    for (const job of this.disconnect(id)) this.copy(job)
    return [...this.taken].filter(([, taken]) => taken.worker === id).map(([job]) => job)
  }

  /** Whether it is placed. */
  place(job: ReadyJob, how: 'hint' | 'relay' | 'audit'): boolean {
    const taken = this.taken.get(job.id)
    if (taken) {
      const { lane, score, leaseToken } = taken.job
      const newer = Number(job.leaseToken) - Number(leaseToken)
      const hasMoved = lane !== job.lane
      const isChanged = how === 'relay' && newer === 0 && (hasMoved || score !== job.score)
      if (how !== 'audit' && newer <= 0 && !isChanged) return false
      this.taken.delete(job.id)
      if (isChanged && hasMoved) this.addSlots(this.lanes.get(lane), 1)
    }
    const known = this.find(job.id)
    if (known && how === 'hint') return false
    if (known?.lane === job.lane && known.score === job.score) {
      known.leaseToken = job.leaseToken
      return false
    }
    this.remove(job.id)
    const lane = this.lanes.get(job.lane)
    if (!lane || (lane.bound && !isBefore(job, lane.bound))) return false
    lane.jobs.push(job)
    lane.jobs.sort(byPlace)
    if (lane.jobs.length > this.sizes.window) {
      const tail = lane.jobs.at(-1) as ReadyJob
      this.remove(tail.id)
      lane.bound = { score: tail.score, id: tail.id }
      if (tail === job) return false
    }
    if (isPlain(lane)) this.copy(job)
    return true
  }

  hint(job: ReadyJob): boolean {
    return this.lanes.has(job.lane) && this.place(job, 'hint')
  }

  /** Whether it was in a lane. */
  remove(id: string): boolean {
    for (const { queue } of this.workers.values()) drop(queue, id)
    return [...this.lanes.values()].some(lane => drop(lane.jobs, id))
  }

  /** Whether the bound is still the one from which was read. */
  refill(facts: LaneFacts, from: Place, bound: Place | null, jobs: readonly ReadyJob[]): boolean {
    let lane = this.lanes.get(facts.lane)
    if (!lane) {
      lane = { facts, bound: START, jobs: [] }
      this.lanes.set(facts.lane, lane)
      for (const [limit, free] of [
        [facts.limit, facts.free],
        [facts.keyLimit, facts.keyFree],
      ] as const)
        if (limit !== null && !this.free.has(limit)) this.free.set(limit, Number(free))
    }
    if (lane.bound?.score !== from.score || lane.bound.id !== from.id) return false
    lane.bound = bound
    for (const job of jobs) this.place({ ...job }, 'relay')
    return true
  }

  /** Which jobs, and of which lanes that are not plain, with how many of the slots that end. */
  take(
    id: number,
    limit: number,
    running: number,
    freed: ReadonlyMap<number, number>,
    ending: ReadonlyMap<number, number>,
    done: readonly string[],
  ) {
    const worker = this.tell(id, running, done)
    for (const [lane, count] of freed) this.addSlots(this.lanes.get(lane), count)
    this.spare = new Map(ending)
    const picked = this.spread.width === 0 ? this.best(worker, limit) : this.fromQueueThenLanes(worker, limit)
    for (const job of picked) {
      this.remove(job.id)
      this.taken.set(job.id, { worker: id, job })
    }
    const isAtEdge = this.lanesOf(worker).some(
      lane => this.canStart(lane) && lane.jobs.some(job => this.isBeyondEdge(worker, job)),
    )
    if (picked.length < limit && !isAtEdge) worker.bound = null
    else if (limit > 0 && worker.bound && worker.queue.length === 0) worker.bound = START
    const limited = new Map<number, number>()
    for (const { lane } of picked)
      if (!isPlain(this.lanes.get(lane) as ModelLane))
        limited.set(lane, (ending.get(lane) ?? 0) - (this.spare.get(lane) ?? 0))
    return { ids: picked.map(job => job.id), limited }
  }

  /** Whether there may be more for the worker. */
  takeOffered(id: number, limit: number, running: number, job: ReadyJob, done: readonly string[]): boolean {
    const worker = this.tell(id, running, done)
    const known = this.find(job.id)
    if (known && known.leaseToken === job.leaseToken) {
      this.remove(job.id)
      this.taken.set(job.id, { worker: id, job: known })
    }
    const hasMore =
      this.lanesOf(worker).some(lane => lane.facts.hasLimits || !isPlain(lane) || lane.jobs.length > 0) ||
      [...this.lanes.values()].some(lane => lane.bound)
    if (limit > 1 && !hasMore) worker.bound = null
    return hasMore
  }

  putBack(id: number, jobs: readonly Refused[]): void {
    for (const refused of jobs) {
      const taken = this.taken.get(refused.id)
      if (taken?.worker !== id) continue
      this.taken.delete(refused.id)
      if (refused.answer !== 'full') this.addSlots(this.lanes.get(taken.job.lane), 1)
      const { answer, ...job } = refused.answer === 'unclear' ? { ...taken.job, answer: '' } : refused
      this.place(job, 'hint')
    }
  }

  setSlots(limit: number, free: number): void {
    if (!this.free.has(limit)) return
    const unclaimed = [...this.taken.values()].filter(taken => {
      const facts = this.lanes.get(taken.job.lane)?.facts
      return facts?.limit === limit || facts?.keyLimit === limit
    })
    this.free.set(limit, Math.max(0, free - unclaimed.length))
  }

  setMode(spread: Spread): void {
    if (spread.width === this.spread.width && spread.strategy === this.spread.strategy) return
    this.spread = spread
    for (const worker of this.workers.values()) Object.assign(worker, { queue: [], bound: START })
  }

  find(id: string): ReadyJob | undefined {
    return [...this.lanes.values()].flatMap(lane => lane.jobs).find(job => job.id === id)
  }

  private tell(id: number, running: number, done: readonly string[]): ModelWorker {
    const worker = this.workers.get(id) as ModelWorker
    worker.running = running
    for (const job of done) if (this.taken.get(job)?.worker === id) this.taken.delete(job)
    return worker
  }

  private lanesOf({ facts }: ModelWorker): ModelLane[] {
    return [...this.lanes.values()].filter(
      ({ facts: { task, tag, constraintTag } }) =>
        facts.tasks.includes(task) &&
        facts.tags.includes(tag) &&
        facts.constraintTags.includes(constraintTag),
    )
  }

  private plainLanesOf(worker: ModelWorker): ModelLane[] {
    return this.lanesOf(worker).filter(isPlain)
  }

  private isHeld(id: string): boolean {
    return [...this.workers.values()].some(({ queue }) => queue.some(job => job.id === id))
  }

  /** Jobs of which it held the last copy. */
  private disconnect(id: number): ReadyJob[] {
    const queue = this.workers.get(id)?.queue ?? []
    this.workers.delete(id)
    return queue.filter(job => !this.isHeld(job.id))
  }

  private eligible(job: ReadyJob): ModelWorker[] {
    const lane = this.lanes.get(job.lane) as ModelLane
    return [...this.workers.values()].filter(worker => this.lanesOf(worker).includes(lane)).sort(byId)
  }

  private copy(job: ReadyJob): void {
    const { depth } = this.sizes
    const open = this.eligible(job).filter(worker => worker.bound !== START)
    if (open.length === 0) return
    const chosen: ModelWorker[] = []
    for (const worker of this.inOrder(open)) {
      const isWanted = !worker.bound || isBefore(job, worker.bound)
      const tail = worker.queue.at(-1)
      const isBeforeTail = tail !== undefined && isBefore(job, tail)
      if (this.spread.width > 0 && chosen.length === this.spread.width) break
      if (isWanted && (this.spread.width > 0 || chosen.length < CROWD || isBeforeTail)) {
        if (worker.queue.length < depth || isBeforeTail) chosen.push(worker)
        else worker.bound = placeOf(job)
      } else if (this.spread.width === 0 && open.length > CROWD && !tail) worker.bound = START
      else if (isWanted) worker.bound = placeOf(job)
    }
    for (const worker of chosen) {
      worker.queue.push(job)
      worker.queue.sort(byPlace)
    }
    for (const worker of chosen) {
      if (worker.queue.length <= depth) continue
      const tail = worker.queue.pop() as ReadyJob
      const others = this.spread.width > 0 && !this.isHeld(tail.id) ? this.eligible(tail) : []
      for (const { id } of [worker, ...others]) {
        const lowered = this.workers.get(id) as ModelWorker
        if (!lowered.bound || isBefore(tail, lowered.bound)) lowered.bound = placeOf(tail)
      }
    }
  }

  /** In which they are asked whether they have room. */
  private inOrder(open: ModelWorker[]): ModelWorker[] {
    if (this.spread.width === 0) return open
    if (this.spread.strategy === 'round-robin') {
      const first = this.turn++ % open.length
      return [...open.slice(first), ...open.slice(0, first)]
    }
    const load = (worker: ModelWorker) => worker.queue.length + worker.running
    return open.sort((a, b) => load(a) - load(b) || byId(a, b))
  }

  private addSlots(lane: ModelLane | undefined, count: number): void {
    for (const limit of limitsOf(lane)) this.free.set(limit, (this.free.get(limit) ?? 0) + count)
  }

  private canStart(lane: ModelLane): boolean {
    if ((this.spare.get(lane.facts.lane) ?? 0) > 0) return true
    return limitsOf(lane).every(limit => (this.free.get(limit) ?? 0) > 0)
  }

  /** One of the worker's lanes that could start a job goes on in Postgres before this one. */
  private isBeyondEdge(worker: ModelWorker, job: ReadyJob): boolean {
    return this.lanesOf(worker).some(lane => lane.bound && !isBefore(job, lane.bound) && this.canStart(lane))
  }

  /** Takes the slots too, if there are any. */
  private mayStart(worker: ModelWorker, job: ReadyJob): boolean {
    const lane = this.lanes.get(job.lane) as ModelLane
    if (!this.canStart(lane) || this.isBeyondEdge(worker, job)) return false
    const spare = this.spare.get(job.lane) ?? 0
    if (spare > 0) this.spare.set(job.lane, spare - 1)
    else this.addSlots(lane, -1)
    return true
  }

  private best(worker: ModelWorker, limit: number): ReadyJob[] {
    const picked: ReadyJob[] = []
    for (const job of this.lanesOf(worker)
      .flatMap(lane => lane.jobs)
      .sort(byPlace)) {
      if (picked.length >= limit) break
      if (this.mayStart(worker, job)) picked.push(job)
    }
    return picked
  }

  private fromQueueThenLanes(worker: ModelWorker, limit: number): ReadyJob[] {
    const picked: ReadyJob[] = []
    const pick = (job: ReadyJob | undefined) => {
      if (job && picked.length < limit && !picked.includes(job) && this.mayStart(worker, job))
        picked.push(job)
    }
    const limited = this.lanesOf(worker)
      .filter(lane => !isPlain(lane))
      .flatMap(lane => lane.jobs)
    const last = worker.queue.at(-1)
    const first = last ? limited.filter(job => isBefore(job, last)) : []
    for (const job of [...worker.queue, ...first].sort(byPlace)) pick(job)
    const others = this.plainLanesOf(worker).flatMap(lane => lane.jobs)
    const rest = [
      ...limited.filter(job => !first.includes(job)),
      ...others.filter(job => !this.isHeld(job.id)),
    ]
    for (const job of rest.sort(byPlace)) pick(job)
    for (const job of others.sort(byPlace)) pick(job)
    return picked
  }
}

const isPlain = ({ facts }: ModelLane) =>
  facts.limit === null && facts.keyLimit === null && facts.kind === facts.lane

const limitsOf = (lane: ModelLane | undefined) =>
  [lane?.facts.limit, lane?.facts.keyLimit].filter(limit => limit !== undefined && limit !== null)

function drop(jobs: ReadyJob[], id: string): boolean {
  const at = jobs.findIndex(job => job.id === id)
  if (at < 0) return false
  jobs.splice(at, 1)
  return true
}
