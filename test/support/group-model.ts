/**
 * The model of groups and workflows: what becomes of jobs, as the requirements say it, without stores, counters or locks. Every rule
 * is told from the whole: a job waits while one that it runs after has not ended, or another of its workflow goes first.
 */
import type { EdgePolicy } from '../../src/index.ts'

export type ModelState =
  | 'waiting'
  | 'ready'
  | 'running'
  | 'succeeded'
  | 'failed'
  | 'cancelled'
  | 'dependency_failed'

export interface ModelJob {
  id: string
  task: string
  state: ModelState
  parents: ReadonlyMap<string, EdgePolicy>
  group?: string
  workflow?: string
  halts: boolean
  /** Nobody of its workflow goes before it. */
  hasTurn: boolean
  attempts: number
  rescues: number
  isCancelled: boolean
  worker?: number
  token?: string
}

export type Outcome = 'succeeded' | 'failed' | 'retry' | 'released'

export const MAX_ATTEMPTS = 2
export const MAX_RESCUES = 1

export class GroupModel {
  /** In the order of their submission. */
  readonly jobs = new Map<string, ModelJob>()
  readonly groups = new Map<string, { isCancelled: boolean; end?: string }>()
  readonly halted = new Set<string>()

  insert(jobs: readonly Pick<ModelJob, 'id' | 'task' | 'parents' | 'group' | 'workflow' | 'halts'>[]): void {
    for (const job of jobs) {
      this.jobs.set(job.id, {
        ...job,
        state: 'waiting',
        hasTurn: false,
        attempts: 0,
        rescues: 0,
        isCancelled: false,
      })
    }
    this.settleDown()
  }

  claim(id: string, worker: number, token: string): void {
    const job = this.#get(id)
    if (job.state !== 'ready') throw new Error(`job ${id} was claimed, and is ${job.state}`)
    Object.assign(job, { state: 'running', worker, token, attempts: job.attempts + 1 })
  }

  settle(id: string, outcome: Outcome): void {
    const job = this.#get(id)
    if (job.isCancelled) this.#end(job, 'cancelled')
    else if (outcome === 'succeeded') this.#end(job, 'succeeded')
    else if (outcome === 'failed' || (outcome === 'retry' && job.attempts >= MAX_ATTEMPTS))
      this.#end(job, 'failed')
    else this.#sendBack(job, outcome === 'released')
  }

  rescue(worker: number): void {
    for (const job of this.running(worker)) {
      if (job.isCancelled) this.#end(job, 'cancelled')
      else if (job.rescues >= MAX_RESCUES) this.#end(job, 'failed')
      else {
        job.rescues++
        this.#sendBack(job, true)
      }
    }
  }

  cancelJob(id: string): string {
    const job = this.#get(id)
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
      this.#closeOne(id)
      return group.end === 'cancelled' ? 'cancelled' : 'finished'
    }
    group.isCancelled = true
    for (const job of left) {
      if (job.state === 'running') job.isCancelled = true
      else job.state = 'cancelled'
    }
    this.settleDown()
    if (this.left(id).length > 0) return 'cancelling'
    this.#closeOne(id)
    return 'cancelled'
  }

  resume(workflow: string): boolean {
    const was = this.halted.delete(workflow)
    this.settleDown()
    return was
  }

  /** Groups in which nothing is left have ended. */
  close(): void {
    for (const id of this.groups.keys()) this.#closeOne(id)
  }

  running(worker: number): ModelJob[] {
    return [...this.jobs.values()]
      .filter(job => job.state === 'running' && job.worker === worker)
      .sort((a, b) => (a.id < b.id ? -1 : 1))
  }

  left(group?: string): ModelJob[] {
    return [...this.jobs.values()].filter(
      job => !isEnded(job) && (group === undefined || job.group === group),
    )
  }

  /** Whether it waits because a workflow was stopped, be it for others that do. */
  waitsForHalted(job: ModelJob): boolean {
    if (job.state !== 'waiting') return false
    if (job.workflow !== undefined && !job.hasTurn) {
      if (this.halted.has(job.workflow)) return true
      const head = this.left().find(other => other.workflow === job.workflow)
      if (head && this.waitsForHalted(head)) return true
    }
    return [...job.parents.keys()].some(parent => this.waitsForHalted(this.#get(parent)))
  }

  #get(id: string): ModelJob {
    const job = this.jobs.get(id)
    if (!job) throw new Error(`there is no job ${id}`)
    return job
  }

  #sendBack(job: ModelJob, isUncounted: boolean): void {
    job.state = 'ready'
    if (isUncounted) job.attempts--
    delete job.worker
    delete job.token
  }

  #end(job: ModelJob, state: ModelState): void {
    job.state = state
    if (state === 'failed' && job.halts && job.workflow !== undefined) this.halted.add(job.workflow)
    this.settleDown()
  }

  /** First what cannot run any more ends, then turns are passed on, then what may run is ready. */
  settleDown(): void {
    const waiting = () => [...this.jobs.values()].filter(job => job.state === 'waiting')
    const doomed = new Set<ModelJob>()
    const isLost = (parent: string) => {
      const job = this.#get(parent)
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
    const heads = new Set<string>()
    for (const job of this.left()) {
      if (job.workflow === undefined || heads.has(job.workflow)) continue
      heads.add(job.workflow)
      job.hasTurn ||= !this.halted.has(job.workflow)
    }
    for (const job of waiting()) {
      const isFree = [...job.parents.keys()].every(parent => isEnded(this.#get(parent)))
      if (isFree && (job.workflow === undefined || job.hasTurn)) job.state = 'ready'
    }
  }

  #closeOne(id: string): void {
    const group = this.groups.get(id)
    if (!group || group.end !== undefined || this.left(id).length > 0) return
    const states = new Set([...this.jobs.values()].filter(job => job.group === id).map(job => job.state))
    if (group.isCancelled) group.end = 'cancelled'
    else if (states.has('failed') || states.has('dependency_failed')) group.end = 'failed'
    else group.end = states.has('cancelled') ? 'cancelled' : 'complete'
  }
}

export const isEnded = (job: ModelJob) => !['waiting', 'ready', 'running'].includes(job.state)
