/**
 * Users of groups and workflows who do as a seed says, and remember what they were promised. At the end every job's state must
 * be explained by what it ran after, by its own plan, or by who cancelled it.
 */
import { type EdgePolicy, type JobRef, LongshoreError, type Producer } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'
import { type PartPlan, part } from './process-tasks.ts'
import { eventually } from './signals.ts'

export type Random = () => number

/** The same numbers for the same seed (mulberry32). */
export function seeded(seed: number): Random {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Planned {
  way: PartPlan['way']
  parents: ReadonlyMap<string, EdgePolicy>
  group?: string
  isCancelAsked: boolean
}

interface PlannedGroup {
  jobs: string[]
  isCancelAsked: boolean
  /** Somebody was told that it is cancelled. */
  isCancelled: boolean
}

const WAYS = ['succeed', 'succeed', 'succeed', 'complete', 'complete', 'flaky', 'fail'] as const
const POLICIES = ['fail', 'run', 'run', 'cancel'] as const
const WORKFLOWS = 6
const MOST_LEFT = 400
const MOST_TOLD = 20

export class GraphLoad {
  readonly jobs = new Map<string, Planned>()
  readonly groups = new Map<string, PlannedGroup>()
  /** What was promised in this order, for each workflow and user. */
  readonly #orders: string[][] = []
  /** What reached a user and is none of the answers that the guide tells of. */
  readonly errors: string[] = []
  readonly #slowest = new Map<string, number>()
  readonly #database: TestDatabase

  constructor(database: TestDatabase) {
    this.#database = database
  }

  /** One user, until `isOver`. */
  async use(producer: Producer, random: Random, isOver: () => boolean): Promise<void> {
    const user = new User(this, producer, random)
    const ordered = new Map<string, string[]>()
    user.onOrdered = (workflow, ids) => {
      const order = ordered.get(workflow) ?? []
      if (order.length === 0) this.#orders.push(order)
      ordered.set(workflow, order)
      order.push(...ids)
    }
    for (let acts = 0; !isOver(); acts++) {
      if (acts % 8 === 0)
        await eventually(
          'few jobs are left',
          async () => isOver() || (await this.left()) <= MOST_LEFT,
          60_000,
        )
      if (!isOver()) await user.act()
    }
  }

  async left(): Promise<number> {
    const [row] = await this.#database.rows<{ n: number }>(
      `select count(*)::int as n from (select from longshore.jobs limit ${MOST_LEFT + 1}) j`,
    )
    return row?.n ?? 0
  }

  async timed<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
    const began = performance.now()
    try {
      return await call()
    } catch (error) {
      const isExpected = error instanceof LongshoreError && error.code === 'GROUP_ENDED'
      if (!isExpected) this.errors.push(`${what}: ${(error as Error).message}`)
      return undefined
    } finally {
      this.#slowest.set(what, Math.max(this.#slowest.get(what) ?? 0, Math.round(performance.now() - began)))
    }
  }

  /** The slowest call of each kind, in ms. */
  get slowest(): Record<string, number> {
    return Object.fromEntries(this.#slowest)
  }

  /** What cannot be explained, once nothing is left. */
  async problems(): Promise<string[]> {
    const found: string[] = []
    const rows = await this.#database.rows<{
      id: string
      state: string
      workflow: string | null
      seq: string
      effects: number
      error: unknown
    }>(
      `select f.id, f.state, f.workflow, f.workflow_seq as seq, f.error,
         (select count(*)::int from effects e where e.job_id = f.id) as effects
       from longshore.finished_jobs f`,
    )
    const ended = new Map(rows.map(row => [row.id, row]))
    if (ended.size < rows.length) found.push(`${rows.length - ended.size} jobs ended twice`)
    for (const id of ended.keys()) if (!this.jobs.has(id)) found.push(`nobody has enqueued ${id}`)
    for (const [id, job] of this.jobs) {
      const end = ended.get(id)
      if (!end) {
        found.push(`${id} is lost`)
        continue
      }
      const keptBy = (policy: EdgePolicy) =>
        [...job.parents].some(([parent, by]) => by === policy && ended.get(parent)?.state !== 'succeeded')
      const mayBeCancelled =
        job.isCancelAsked || (job.group !== undefined && this.groups.get(job.group)?.isCancelAsked)
      const ends: string[] = []
      // Whichever of its parents was first.
      if (keptBy('fail')) ends.push('dependency_failed')
      if (keptBy('cancel')) ends.push('cancelled')
      if (ends.length === 0) ends.push(job.way === 'fail' ? 'failed' : 'succeeded')
      if (mayBeCancelled) ends.push('cancelled')
      if (!ends.includes(end.state))
        found.push(
          `${id} (${job.way}) ended as ${end.state}, not as ${ends.join(' or ')}: ${JSON.stringify(end.error)}`,
        )
      const effects = job.way === 'complete' && end.state === 'succeeded' ? 1 : 0
      if (end.effects !== effects)
        found.push(`${id} (${job.way}, ${end.state}) has ${end.effects} effects, not ${effects}`)
    }
    const groups = await this.#database.rows<{ id: string; end_state: string | null; counted: number }>(
      'select id, end_state, succeeded + failed + cancelled + dependency_failed as counted from longshore.groups',
    )
    const ends = new Map(groups.map(group => [group.id, group]))
    for (const [id, group] of this.groups) {
      const end = ends.get(id)
      const states = new Set(group.jobs.map(job => ended.get(job)?.state))
      const demanded =
        states.has('failed') || states.has('dependency_failed')
          ? 'failed'
          : states.has('cancelled')
            ? 'cancelled'
            : 'succeeded'
      const isRight = group.isCancelled
        ? end?.end_state === 'cancelled'
        : end?.end_state === demanded || (group.isCancelAsked && end?.end_state === 'cancelled')
      if (!isRight) found.push(`group ${id} ended as ${end?.end_state}, not as ${demanded}`)
      if (end?.counted !== group.jobs.length)
        found.push(`group ${id} counted ${end?.counted} jobs, not ${group.jobs.length}`)
    }
    for (const order of this.#orders) {
      // A workflow that was empty in between has begun anew, with numbers of its own.
      const places = order.map(id => ended.get(id)).filter(row => row !== undefined)
      for (const [at, place] of places.entries()) {
        const before = places[at - 1]
        if (before && before.workflow === place.workflow && Number(before.seq) >= Number(place.seq))
          found.push(`${place.id} was enqueued after ${before.id} and stands before it`)
      }
    }
    return found.slice(0, MOST_TOLD)
  }
}

class User {
  onOrdered: (workflow: string, ids: string[]) => void = () => undefined
  readonly #load: GraphLoad
  readonly #producer: Producer
  readonly #random: Random

  constructor(load: GraphLoad, producer: Producer, random: Random) {
    this.#load = load
    this.#producer = producer
    this.#random = random
  }

  async act(): Promise<void> {
    const dice = this.#random()
    if (dice < 0.4) await this.#submit()
    else if (dice < 0.6) await this.#add()
    else if (dice < 0.8) await this.#enqueue()
    else if (dice < 0.88) await this.#cancelGroup()
    else if (dice < 0.96) await this.#cancelJob()
    else await this.#load.timed('resume', () => this.#producer.resumeWorkflow(this.#workflow()))
  }

  #below(n: number): number {
    return Math.floor(this.#random() * n)
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#below(list.length)] as T
  }

  #plan(): PartPlan {
    return { ms: this.#below(4) * this.#below(8), way: this.#pick(WAYS) }
  }

  /** Half of them halt on failure. */
  #workflow(): string {
    return `w${this.#below(WORKFLOWS)}`
  }

  #place(workflow: string) {
    return {
      workflow,
      ...(Number(workflow.slice(1)) % 2 === 0 ? { onWorkflowFailure: 'halt' as const } : {}),
    }
  }

  /** Most of them the newest, which are alive. */
  #someGroup(): string | undefined {
    return this.#pick([...this.#load.groups.keys()].slice(-12))
  }

  async #submit(): Promise<void> {
    const group = this.#producer.group()
    const made = this.#fill(group, 1 + this.#below(15), [], group.id)
    await this.#send('submit', group, made)
  }

  async #add(): Promise<void> {
    const id = this.#someGroup()
    if (id === undefined) return this.#submit()
    const group = this.#producer.addToGroup(id)
    const made = this.#fill(group, 1 + this.#below(3), this.#load.groups.get(id)?.jobs ?? [], id)
    await this.#send('add', group, made)
  }

  #fill(
    group: ReturnType<Producer['group']>,
    count: number,
    known: readonly string[],
    id: string,
  ): Map<string, Planned> {
    const made = new Map<string, Planned>()
    const share = this.#random() < 0.5 ? 0.3 : 0
    const drafts = Array.from({ length: count }, () => {
      const plan = this.#plan()
      const place = this.#random() < share ? this.#place(this.#workflow()) : undefined
      return { plan, place, job: group.add(part, plan, place) }
    })
    // In an order of its own, so that parents are not always older than their children; jobs of workflows would go round in circles.
    const isOrdered = drafts.some(({ place }) => place)
    const order = drafts
      .map((draft, n) => ({ ...draft, at: isOrdered ? n : this.#random() }))
      .sort((a, b) => a.at - b.at)
    const before: string[] = [...known]
    for (const { plan, job } of order) {
      const parents = new Map<string, EdgePolicy>()
      for (let n = this.#below(4); n > 0 && before.length > 0; n--)
        parents.set(this.#pick(before), this.#pick(POLICIES))
      job.after(...[...parents].map(([parent, onFailure]) => ({ job: parent, onFailure })))
      before.push(job.id)
      made.set(job.id, { way: plan.way, parents, group: id, isCancelAsked: false })
    }
    return made
  }

  async #send(
    what: string,
    group: ReturnType<Producer['group']>,
    made: ReadonlyMap<string, Planned>,
  ): Promise<void> {
    const done = await this.#load.timed(what, () => group.submit())
    if (!done) return
    if (!done.isNew) this.#load.errors.push(`${what}: the group was there before`)
    for (const [id, job] of made) this.#load.jobs.set(id, job)
    const known = this.#load.groups.get(group.id)
    if (known) known.jobs.push(...made.keys())
    else this.#load.groups.set(group.id, { jobs: [...made.keys()], isCancelAsked: false, isCancelled: false })
  }

  async #enqueue(): Promise<void> {
    const workflow = this.#workflow()
    const plans = Array.from({ length: 1 + this.#below(4) }, () => this.#plan())
    const sent = await this.#load.timed('enqueue', (): Promise<JobRef[]> => {
      const options = this.#place(workflow)
      if (this.#random() < 0.5) return this.#producer.enqueueMany(part, plans, options)
      return Promise.all(plans.map(plan => this.#producer.enqueue(part, plan, options)))
    })
    for (const [at, { id }] of (sent ?? []).entries())
      this.#load.jobs.set(id, {
        way: plans[at]?.way ?? 'succeed',
        parents: new Map(),
        isCancelAsked: false,
      })
    this.onOrdered(
      workflow,
      (sent ?? []).map(({ id }) => id),
    )
  }

  async #cancelGroup(): Promise<void> {
    const id = this.#someGroup()
    const group = id === undefined ? undefined : this.#load.groups.get(id)
    if (id === undefined || !group) return
    group.isCancelAsked = true
    const answer = await this.#load.timed('cancelGroup', () => this.#producer.cancelGroup(id))
    if (answer === 'cancelled' || answer === 'cancelling') group.isCancelled = true
  }

  async #cancelJob(): Promise<void> {
    const id = this.#pick([...this.#load.jobs.keys()].slice(-60))
    const job = id === undefined ? undefined : this.#load.jobs.get(id)
    if (id === undefined || !job) return
    job.isCancelAsked = true
    await this.#load.timed('cancel', () => this.#producer.cancel(id))
  }
}
