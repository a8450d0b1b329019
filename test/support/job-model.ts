/**
 * The model of jobs: what becomes of them, as the requirements say it, without stores, counters, locks or Redis. Every rule is told
 * from the whole: a job waits while one that it runs after has not ended, or another of its workflow goes first; a limit has as
 * many free slots as it is larger than the number of jobs that run under it.
 */
import type { EdgePolicy } from '../../src/index.ts'

const UNFINISHED = ['waiting', 'scheduled', 'ready', 'running'] as const
type Unfinished = (typeof UNFINISHED)[number]
type Ended = 'succeeded' | 'failed' | 'cancelled' | 'dependency_failed'

/** What a job is when it is submitted. */
export interface NewModelJob {
  id: string
  task: string
  tag: string
  constraintTag: string
  key?: string
  priority: number
  /** Its time has not come. */
  isDelayed: boolean
  parents: ReadonlyMap<string, EdgePolicy>
  group?: string
  workflow?: string
  halts: boolean
}

export interface ModelJob extends NewModelJob {
  state: Unfinished | Ended
  /** Nobody of its workflow goes before it. */
  hasTurn: boolean
  attempts: number
  rescues: number
  isCancelled: boolean
  /** While it runs. */
  worker?: number
  /** Of its last run; '0' before the first. */
  token: string
  /** Its place in the order and its lane, as Postgres gave them; unknown after what may change them. */
  score?: bigint
  lane?: number
}

export interface ModelWorker {
  id: number
  tasks: readonly string[]
  tags: readonly string[]
  constraintTags: readonly string[]
}

export type OutcomeKind = 'succeeded' | 'failed' | 'retry' | 'retry later' | 'released'
/** What a worker says of a run that it believes to hold. */
export interface ModelOutcome {
  id: string
  token: string
  kind: OutcomeKind
}

export const MAX_ATTEMPTS = 2
export const MAX_RESCUES = 1

export class JobModel {
  /** In the order of their submission. */
  readonly jobs = new Map<string, ModelJob>()
  readonly groups = new Map<string, { isCancelled: boolean; end?: string }>()
  readonly halted = new Set<string>()
  /** Task → how many of it may run at once, and how many of each of its keys. */
  readonly limits = new Map<string, { all?: number; perKey?: number }>()
  /** Workers that are not taken for dead. */
  readonly workers = new Map<number, ModelWorker>()
  /** Every run that there was. */
  readonly runs: { id: string; worker: number; token: string }[] = []
  #lastToken = 0n

  insert(jobs: readonly NewModelJob[]): void {
    for (const job of jobs) {
      if (this.jobs.has(job.id)) continue // it was enqueued before: nothing changes
      this.jobs.set(job.id, {
        ...job,
        state: 'waiting',
        hasTurn: false,
        attempts: 0,
        rescues: 0,
        isCancelled: false,
        token: '0',
      })
    }
    // First: a job that ends at once, because of what it was to run after, halts only those behind it.
    this.#giveTurns()
    this.#settleDown()
  }

  /** What a worker is handed, best first: of all that it may run, or of those that Redis named in these lanes. */
  claimable(
    worker: number,
    limit: number,
    named?: { ids: readonly string[]; lanes: readonly number[] },
  ): ModelJob[] {
    const by = this.workers.get(worker)
    if (!by) return []
    const claimed: ModelJob[] = []
    for (const job of this.inOrder()) {
      if (claimed.length === limit) break
      if (named && !(named.ids.includes(job.id) && named.lanes.includes(job.lane as number))) continue
      if (mayRun(by, job) && this.hasSlot(job, claimed)) claimed.push(job)
    }
    return claimed
  }

  /**
   * As `claimable`, of a claim that ended early: those of `claimed` that it may have been handed in this order. It may have passed over jobs
   * whose limit it leaves to a better job of the same task that only another worker can run.
   */
  claimedEarly(worker: number, claimed: readonly string[]): string[] {
    const by = this.workers.get(worker)
    if (!by) return []
    const ready = this.inOrder()
    const handed: ModelJob[] = []
    for (const [place, job] of ready.entries()) {
      if (handed.length === claimed.length) break
      if (!mayRun(by, job) || !this.hasSlot(job, handed)) continue
      if (job.id === claimed[handed.length]) handed.push(job)
      else if (!ready.slice(0, place).some(better => this.isOnlyOfOthers(by, better, job.task))) break
    }
    return handed.map(job => job.id)
  }

  isOnlyOfOthers(by: ModelWorker, job: ModelJob, task: string): boolean {
    return (
      job.task === task && !mayRun(by, job) && [...this.workers.values()].some(other => mayRun(other, job))
    )
  }

  /** What is ready, best first. */
  inOrder(): ModelJob[] {
    const place = (job: ModelJob) => job.score ?? 0n
    return [...this.jobs.values()]
      .filter(job => job.state === 'ready')
      .sort((a, b) => (place(a) < place(b) || (place(a) === place(b) && a.id < b.id) ? -1 : 1))
  }

  /** Whether its limits have room beside what runs and `more`. */
  hasSlot(job: ModelJob, more: readonly ModelJob[] = []): boolean {
    const { all = Infinity, perKey = Infinity } = this.limits.get(job.task) ?? {}
    const beside = [...this.running(), ...more].filter(other => other.task === job.task)
    const isRoomOfKey = job.key === undefined || beside.filter(({ key }) => key === job.key).length < perKey
    return beside.length < all && isRoomOfKey
  }

  /** A call may hand jobs over in several steps, each with a new token. */
  claim(claimed: readonly { id: string; token: string }[], worker: number): void {
    const before = this.#lastToken
    for (const { id, token } of claimed) {
      if (BigInt(token) < this.#lastToken || BigInt(token) === before)
        throw new Error(`token ${token} was given after ${this.#lastToken}`)
      this.#lastToken = BigInt(token)
      const job = this.get(id)
      if (job.state !== 'ready') throw new Error(`job ${id} was claimed, and is ${job.state}`)
      Object.assign(job, { state: 'running', worker, token, attempts: job.attempts + 1 })
      this.runs.push({ id, worker, token })
    }
  }

  /** Answers which of them are refused: the run is not that worker's any more, and this is not how it ended. */
  settle(worker: number, outcomes: readonly ModelOutcome[]): string[] {
    const lost: string[] = []
    for (const { id, token, kind } of outcomes) {
      const job = this.get(id)
      if (job.state === 'running' && job.worker === worker && job.token === token) this.#endRun(job, kind)
      else if (!isEnded(job) || job.token !== token) lost.push(id)
    }
    return lost
  }

  #endRun(job: ModelJob, kind: OutcomeKind): void {
    const isRetry = kind === 'retry' || kind === 'retry later'
    if (job.isCancelled) this.#end(job, 'cancelled')
    else if (kind === 'succeeded') this.#end(job, 'succeeded')
    else if (kind === 'failed' || (isRetry && job.attempts >= MAX_ATTEMPTS)) this.#end(job, 'failed')
    else this.#sendBack(job, kind)
  }

  /** Some worker is dead: the first of its runs, by id, are taken back. */
  rescue(dead: readonly number[], limit: number): void {
    const runs = dead.flatMap(worker => this.running(worker)).sort(byId)
    for (const job of runs.slice(0, limit)) {
      if (job.isCancelled) this.#end(job, 'cancelled')
      else if (job.rescues >= MAX_RESCUES) this.#end(job, 'failed')
      else {
        job.rescues++
        this.#sendBack(job, 'released')
      }
    }
  }

  cancelJob(id: string): string {
    const job = this.get(id)
    if (job.state === 'running') {
      job.isCancelled = true
      return 'cancelling'
    }
    if (job.state === 'cancelled') return 'cancelled'
    if (isEnded(job)) return 'finished'
    this.#end(job, 'cancelled')
    return 'cancelled'
  }

  cancelGroup(id: string): string {
    const group = this.groups.get(id)
    const left = this.left(id)
    if (!group) return 'unknown'
    if (left.length === 0) {
      this.close(id)
      return group.end === 'cancelled' ? 'cancelled' : 'finished'
    }
    group.isCancelled = true
    for (const job of left) {
      if (job.state === 'running') job.isCancelled = true
      else job.state = 'cancelled'
    }
    this.#settleDown()
    if (this.left(id).length > 0) return 'cancelling'
    this.close(id)
    return 'cancelled'
  }

  change(id: string, change: Partial<Pick<ModelJob, 'priority' | 'isDelayed' | 'constraintTag'>>): string {
    const job = this.get(id)
    if (isEnded(job)) return 'finished'
    if (job.state === 'running') return 'running'
    Object.assign(job, change)
    delete job.score
    delete job.lane
    if (job.state !== 'waiting') job.state = job.isDelayed ? 'scheduled' : 'ready'
    return 'changed'
  }

  /** The time of everything that was delayed has come. */
  promote(): void {
    for (const job of this.left()) {
      if (!job.isDelayed) continue
      job.isDelayed = false
      delete job.score
      if (job.state === 'scheduled') job.state = 'ready'
    }
  }

  resume(workflow: string): boolean {
    const was = this.halted.delete(workflow)
    this.#settleDown()
    return was
  }

  /** A group in which nothing is left has ended. */
  close(id: string): void {
    const group = this.groups.get(id)
    if (!group || group.end !== undefined || this.left(id).length > 0) return
    const states = new Set([...this.jobs.values()].filter(job => job.group === id).map(job => job.state))
    if (group.isCancelled) group.end = 'cancelled'
    else if (states.has('failed') || states.has('dependency_failed')) group.end = 'failed'
    else group.end = states.has('cancelled') ? 'cancelled' : 'succeeded'
  }

  running(worker?: number): ModelJob[] {
    return [...this.jobs.values()]
      .filter(job => job.state === 'running' && (worker === undefined || job.worker === worker))
      .sort(byId)
  }

  left(group?: string): ModelJob[] {
    return [...this.jobs.values()].filter(
      job => !isEnded(job) && (group === undefined || job.group === group),
    )
  }

  /** How many things it waits for. */
  pending(job: ModelJob): number {
    const parents = [...job.parents.keys()].filter(parent => !isEnded(this.get(parent))).length
    return parents + (job.workflow !== undefined && !job.hasTurn ? 1 : 0)
  }

  /** Whether it waits because a workflow was stopped, be it for others that do. */
  waitsForHalted(job: ModelJob): boolean {
    if (job.state !== 'waiting') return false
    if (job.workflow !== undefined && !job.hasTurn) {
      if (this.halted.has(job.workflow)) return true
      const head = this.left().find(other => other.workflow === job.workflow)
      if (head && this.waitsForHalted(head)) return true
    }
    return [...job.parents.keys()].some(parent => this.waitsForHalted(this.get(parent)))
  }

  get(id: string): ModelJob {
    const job = this.jobs.get(id)
    if (!job) throw new Error(`there is no job ${id}`)
    return job
  }

  #sendBack(job: ModelJob, kind: OutcomeKind): void {
    job.isDelayed = kind === 'retry later'
    job.state = job.isDelayed ? 'scheduled' : 'ready'
    if (kind === 'released') job.attempts--
    else delete job.score // a retry is due anew
    delete job.worker
  }

  #end(job: ModelJob, state: Ended): void {
    job.state = state
    if (state === 'failed' && job.halts && job.workflow !== undefined) this.halted.add(job.workflow)
    this.#settleDown()
  }

  /** To the first job of each workflow that is not halted. */
  #giveTurns(): void {
    const heads = new Set<string>()
    for (const job of this.left()) {
      if (job.workflow === undefined || heads.has(job.workflow)) continue
      heads.add(job.workflow)
      job.hasTurn ||= !this.halted.has(job.workflow)
    }
  }

  /** First what cannot run any more ends, then turns are passed on, then what may run is ready, or scheduled. */
  #settleDown(): void {
    const waiting = () => [...this.jobs.values()].filter(job => job.state === 'waiting')
    const doomed = new Set<ModelJob>()
    const isLost = (parent: string) => {
      const job = this.get(parent)
      return doomed.has(job) || (isEnded(job) && job.state !== 'succeeded')
    }
    const isKeptBy = (job: ModelJob, which: (policy: EdgePolicy) => boolean) =>
      [...job.parents].some(([parent, policy]) => which(policy) && isLost(parent))
    // A parent stands before its children.
    for (const job of waiting()) if (isKeptBy(job, policy => policy !== 'run')) doomed.add(job)
    for (const job of doomed) {
      const hasFailed = isKeptBy(job, policy => policy === 'fail')
      job.state = hasFailed ? 'dependency_failed' : 'cancelled'
      if (hasFailed && job.halts && job.workflow !== undefined) this.halted.add(job.workflow)
    }
    this.#giveTurns()
    for (const job of waiting()) {
      if (this.pending(job) === 0) job.state = job.isDelayed ? 'scheduled' : 'ready'
    }
  }
}

export const isEnded = (job: Pick<ModelJob, 'state'>) =>
  !(UNFINISHED as readonly string[]).includes(job.state)

export const mayRun = (worker: ModelWorker, job: ModelJob) =>
  worker.tasks.includes(job.task) &&
  worker.tags.includes(job.tag) &&
  worker.constraintTags.includes(job.constraintTag)

const byId = (a: ModelJob, b: ModelJob) => (a.id < b.id ? -1 : 1)
