/** One user of a producer: does as a seed says. Everything is written down before it is asked for, and what was told after. */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import {
  type EdgePolicy,
  type GroupBuilder,
  LongshoreError,
  newJobId,
  type Producer,
  type Queryable,
} from '../../src/index.ts'
import { isTransientError } from '../../src/postgres/transient-error.ts'
import type { Random } from '../support/graph-load.ts'
import { type AskedJob, type CallLine, type Payload, trueNow, type Way } from './evidence.ts'
import { ASKED, capped, FIRST_LIMITS, part, plain, tenant } from './tasks.ts'

const WAYS: readonly Way[] = ['succeed', 'succeed', 'complete', 'complete', 'complete', 'flaky', 'fail']
const POLICIES: readonly EdgePolicy[] = ['fail', 'run', 'run', 'cancel']
const WORKFLOWS = 6
const TENANTS = 6
const LONGEST_DOUBT_MS = 1500
const LONGEST_TRANSACTION_MS = 6000
/** Calls that are remembered, to cancel or add to something of them. */
const REMEMBERED = 40

const cappedTask = capped(FIRST_LIMITS)
const tenantTask = tenant(FIRST_LIMITS)

/** One of a group that was acknowledged, for those who add to it. */
interface KnownGroup {
  id: string
  jobs: { id: string; key: string }[]
}

export interface UserOptions {
  /** Of the process. */
  name: string
  postgres: string
  producer: Producer
  random: Random
  /** The next number of a call of the process. */
  next: () => number
  write: (line: CallLine) => void
}

export class User {
  readonly #options: UserOptions
  readonly #producer: Producer
  readonly #random: Random
  readonly #write: UserOptions['write']
  readonly #groups: KnownGroup[] = []
  readonly #jobs: { id: string; key: string }[] = []

  constructor(options: UserOptions) {
    this.#options = options
    this.#producer = options.producer
    this.#random = options.random
    this.#write = options.write
  }

  async act(): Promise<void> {
    const dice = this.#random()
    if (dice < 0.25) await this.#enqueueSingles()
    else if (dice < 0.33) await this.#enqueueMany()
    else if (dice < 0.41) await this.#enqueueChosen()
    else if (dice < 0.56) await this.#inTransaction()
    else if (dice < 0.7) await this.#submitGroup()
    else if (dice < 0.76) await this.#addToGroup()
    else if (dice < 0.9) await this.#enqueueOrdered()
    else if (dice < 0.94) await this.#cancelJob()
    else if (dice < 0.97) await this.#cancelGroup()
    else await this.#changeJob()
  }

  #below(n: number): number {
    return Math.floor(this.#random() * n)
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#below(list.length)] as T
  }

  /** Mostly short; some outlast a lease, and some of those do not listen. */
  #plan(key: string): Payload {
    const ms = this.#random() < 0.015 ? 1000 + this.#below(5000) : this.#below(8) * this.#below(12)
    return { key, way: this.#pick(WAYS), ms, isStubborn: this.#random() < 0.3 }
  }

  #call(): string {
    return `${this.#options.name}/${this.#options.next()}`
  }

  /** Write the call down, make it, and write down how it went. Answers whether it was acknowledged. */
  async #ask(
    line: Omit<CallLine & { e: 'call' }, 'e' | 'at'>,
    make: () => Promise<string[]>,
  ): Promise<boolean> {
    this.#write({ e: 'call', at: trueNow(), ...line })
    try {
      const ids = await make()
      this.#write({ e: 'acknowledged', call: line.call, at: trueNow(), ids })
      for (const [at, { key }] of line.jobs.entries()) this.#jobs.push({ id: ids[at] as string, key })
      this.#jobs.splice(0, this.#jobs.length - REMEMBERED)
      return true
    } catch (error) {
      const isRefused = error instanceof LongshoreError && error.code === 'GROUP_ENDED'
      if (isRefused) this.#write({ e: 'refused', call: line.call, because: error.message })
      else this.#failed(line.call, error)
      return false
    }
  }

  #failed(call: string, error: unknown): void {
    const because = `${(error as { code?: string }).code ?? ''} ${(error as Error).message}`
    this.#write({ e: 'unclear', call, because })
    if (!isTransientError(error)) this.#write({ e: 'failed', call, because })
  }

  /** A job that nothing waits for, of any kind. */
  #single(): {
    payload: Payload
    enqueue: (more?: { id?: string; tx?: Queryable }) => Promise<{ id: string }>
    call: string
  } {
    const call = this.#call()
    const payload = this.#plan(`${call}/0`)
    const dice = this.#random()
    const common = {
      priority: this.#below(4),
      ...(this.#random() < 0.2 ? { delay: this.#below(1500) } : {}),
    }
    const key = `tenant ${this.#below(TENANTS)}`
    const constraints = this.#pick(ASKED)
    return {
      payload,
      call,
      enqueue: (more = {}) => {
        if (dice < 0.3) return this.#producer.enqueue(cappedTask, payload, { ...common, ...more })
        if (dice < 0.6)
          return this.#producer.enqueue(tenantTask, payload, { ...common, concurrencyKey: key, ...more })
        if (dice < 0.75) return this.#producer.enqueue(plain, payload, { ...common, constraints, ...more })
        return this.#producer.enqueue(plain, payload, { ...common, ...more })
      },
    }
  }

  async #enqueueSingles(): Promise<void> {
    const singles = Array.from({ length: 1 + this.#below(8) }, () => this.#single())
    await Promise.all(
      singles.map(({ payload, enqueue, call }) =>
        this.#ask({ call, jobs: [payload] }, async () => [(await enqueue()).id]),
      ),
    )
  }

  async #enqueueMany(): Promise<void> {
    const call = this.#call()
    const payloads = Array.from({ length: 2 + this.#below(30) }, (_, n) => this.#plan(`${call}/${n}`))
    await this.#ask({ call, jobs: payloads }, async () =>
      (await this.#producer.enqueueMany(plain, payloads)).map(({ id }) => id),
    )
  }

  /** With an id of its own: whoever is not told may simply ask again. */
  async #enqueueChosen(): Promise<void> {
    const { payload, enqueue, call } = this.#single()
    const id = newJobId()
    await this.#ask({ call, jobs: [payload] }, async () => {
      for (let tries = 1; ; tries++) {
        try {
          return [(await enqueue({ id })).id]
        } catch (error) {
          if (tries === 5) throw error
        }
      }
    })
    // Asked for once more, it changes nothing, also when the job has run meanwhile.
    await pause(this.#below(LONGEST_DOUBT_MS))
    await enqueue({ id }).catch(() => undefined) // it is known to be there, or unclear
  }

  /** A transaction of the user's own, open for a while; half of them are rolled back. */
  async #inTransaction(): Promise<void> {
    const client = new pg.Client({
      connectionString: this.#options.postgres,
      connectionTimeoutMillis: 5000,
      query_timeout: 10_000,
    })
    client.on('error', () => undefined) // connections are cut on purpose
    const isKept = this.#random() < 0.5
    const holdMs = this.#random() < 0.2 ? this.#below(LONGEST_TRANSACTION_MS) : this.#below(300)
    const isGroup = this.#random() < 0.3
    const singles = Array.from({ length: 1 + this.#below(3) }, () => this.#single())
    const call = singles[0]?.call as string
    const group = this.#producer.group()
    const asked = isGroup ? this.#fill(group, call, 2 + this.#below(6)) : undefined
    const jobs = asked?.jobs ?? singles.map(({ payload }) => payload)
    const line = { call, jobs, isInTransaction: true, ...(asked ? { group: group.id } : {}) }
    this.#write({ e: 'call', at: trueNow(), ...line })
    try {
      await client.connect()
      await client.query('begin')
      const ids: string[] = []
      if (asked) {
        await group.submit({ tx: client })
        ids.push(...asked.ids)
      } else for (const { enqueue } of singles) ids.push((await enqueue({ tx: client })).id)
      await pause(holdMs)
      if (!isKept) {
        this.#write({ e: 'refused', call, because: 'rolled back' })
        await client.query('rollback')
        return
      }
      this.#write({ e: 'commit', call })
      const { command } = await client.query('commit')
      if (command === 'COMMIT') this.#write({ e: 'acknowledged', call, at: trueNow(), ids })
      else this.#write({ e: 'refused', call, because: command })
    } catch (error) {
      if (isKept) this.#failed(call, error)
    } finally {
      // Of a connection that says nothing the end is not waited for.
      await Promise.race([client.end().catch(() => undefined), pause(1000)])
    }
  }

  /** Jobs for a group, with edges among them and to those that are there. */
  #fill(group: GroupBuilder, call: string, count: number, known: KnownGroup['jobs'] = []) {
    const before = [...known]
    const jobs: AskedJob[] = []
    const ids: string[] = []
    const isOrdered = this.#random() < 0.2
    const workflow = `shared ${this.#below(WORKFLOWS)}`
    for (let n = 0; n < count; n++) {
      const payload = this.#plan(`${call}/${n}`)
      const job = group.add(part, payload, isOrdered ? { workflow } : {})
      const parents: [string, EdgePolicy][] = []
      const chosen = new Set<string>()
      for (let edges = this.#below(4); edges > 0 && before.length > 0; edges--) {
        const { id, key } = this.#pick(before)
        if (chosen.has(id)) continue
        chosen.add(id)
        const onFailure = this.#pick(POLICIES)
        job.after({ job: id, onFailure })
        parents.push([key, onFailure])
      }
      before.push({ id: job.id, key: payload.key })
      jobs.push({ key: payload.key, way: payload.way, parents, ...(isOrdered ? { workflow } : {}) })
      ids.push(job.id)
    }
    return { jobs, ids }
  }

  async #submitGroup(): Promise<void> {
    const call = this.#call()
    const group = this.#producer.group()
    const { jobs, ids } = this.#fill(group, call, 2 + this.#below(12))
    const isDone = await this.#ask({ call, jobs, group: group.id }, async () => {
      await group.submit()
      return ids
    })
    if (!isDone) return
    this.#groups.push({ id: group.id, jobs: jobs.map(({ key }, at) => ({ id: ids[at] as string, key })) })
    this.#groups.splice(0, this.#groups.length - REMEMBERED)
  }

  async #addToGroup(): Promise<void> {
    const known = this.#pick(this.#groups.slice(-5))
    if (!known) return this.#submitGroup()
    const call = this.#call()
    const group = this.#producer.addToGroup(known.id)
    const { jobs, ids } = this.#fill(group, call, 1 + this.#below(3), known.jobs)
    const isDone = await this.#ask({ call, jobs, group: known.id }, async () => {
      await group.submit()
      return ids
    })
    if (isDone) known.jobs.push(...jobs.map(({ key }, at) => ({ id: ids[at] as string, key })))
  }

  /** One after another; half of the workflows halt on a failure. */
  async #enqueueOrdered(): Promise<void> {
    const no = this.#below(WORKFLOWS)
    const workflow = `shared ${no}`
    const place = { workflow, ...(no % 2 === 0 ? { onWorkflowFailure: 'halt' as const } : {}) }
    const call = this.#call()
    if (this.#random() < 0.5) {
      const payloads = Array.from({ length: 2 + this.#below(4) }, (_, n) => this.#plan(`${call}/${n}`))
      const jobs = payloads.map(({ key, way }) => ({ key, way, workflow }))
      await this.#ask({ call, jobs }, async () =>
        (await this.#producer.enqueueMany(part, payloads, place)).map(({ id }) => id),
      )
      return
    }
    const payload = this.#plan(`${call}/0`)
    await this.#ask({ call, jobs: [{ key: payload.key, way: payload.way, workflow }] }, async () => [
      (await this.#producer.enqueue(part, payload, place)).id,
    ])
  }

  async #cancelJob(): Promise<void> {
    const job = this.#pick(this.#jobs)
    if (!job) return
    this.#write({ e: 'cancel', key: job.key })
    await this.#producer.cancel(job.id)
  }

  async #cancelGroup(): Promise<void> {
    const group = this.#pick(this.#groups)
    if (!group) return
    this.#write({ e: 'cancel', group: group.id })
    await this.#producer.cancelGroup(group.id)
  }

  async #changeJob(): Promise<void> {
    const job = this.#pick(this.#jobs)
    if (job) await this.#producer.change(job.id, { priority: this.#below(2048) })
  }
}
