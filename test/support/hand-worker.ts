/**
 * A worker whose every step is taken by hand, on either path: what it takes out of Redis, what it says to Postgres, and what it does
 * with the answer. The steps are those of `src/worker/redis-source.ts`; anything may happen between two of them.
 */
import type { JobId } from '../../src/job/job-id.ts'
import type { Pool } from '../../src/postgres/connect.ts'
import type { WorkerKey } from '../../src/postgres/secret.ts'
import {
  type Exchange,
  type Named,
  type Outcome,
  settleAndClaim,
} from '../../src/postgres/settle-and-claim.ts'
import type { QueueIndex, Refused } from '../../src/redis/queue-index.ts'
import type { ModelWorker } from './job-model.ts'

/** What it is about to say to Postgres. */
export interface Call {
  readonly by: HandWorker
  outcomes: Outcome[]
  limit: number
  /** Taken out of Redis for this call. */
  named?: Named
  isStraight?: boolean
}

export interface HandWorker {
  readonly id: number
  readonly key: WorkerKey
  facts: ModelWorker
  /** The generation in which Redis knows it. */
  readonly registered: string | undefined
  /** The relay was heard. Also after its facts have changed. */
  register(generation: string): Promise<void>
  /** Takes out of Redis what it may run, if that is its way. */
  begin(outcomes: Outcome[], limit: number): Promise<Call>
  /** Claims a job that its bell told of, and takes it in Redis meanwhile. */
  beginOffered(job: { id: JobId; lane: number; leaseToken: string }, limit: number): Promise<Call>
  /** Says it to Postgres. */
  send(call: Call): Promise<Exchange>
  /** It has the answer. */
  accept(call: Call, answer: Exchange): Promise<void>
  /** It has none, and does not know whether the call was made. */
  giveUp(call: Call): Promise<void>
  /** Tells Redis what has ended, and puts back what was not handed over. */
  tell(): Promise<void>
  leave(): Promise<void>
}

export function handWorker(options: {
  pool: Pool
  key: WorkerKey
  facts: ModelWorker
  index: QueueIndex | undefined
}): HandWorker {
  const { pool, key: worker, index } = options
  const { id } = options.facts
  let facts = options.facts
  let registered: string | undefined
  let done: JobId[] = []
  let freed = new Map<number, number>()
  let hasComeShort = false
  let refused: Refused[] = []
  /** Of calls without an answer: they are said again. */
  let unclear: Outcome[] = []
  const limitedLanes = new Set<number>()
  const limitedRuns = new Map<string, number>()
  const key = (run: { id: string; leaseToken: string }) => `${run.id} ${run.leaseToken}`
  const countUp = (counts: Map<number, number>, lane: number, by: number) => {
    const count = (counts.get(lane) ?? 0) + by
    if (count === 0) counts.delete(lane)
    else counts.set(lane, count)
  }

  const take = async (limit: number, ending: ReadonlyMap<number, number>) => {
    if (!index || registered === undefined) return undefined
    const told = { done, freed }
    done = []
    freed = new Map()
    const straight = limit === 0 ? undefined : hasComeShort ? 'short' : 'may'
    if (straight === 'short') hasComeShort = false
    const taken = await index.take({
      generation: registered,
      worker: id,
      limit,
      running: limitedRuns.size,
      ...told,
      ending,
      ...(straight ? { straight } : {}),
    })
    refused = refused.filter(({ id: job }) => !taken.ids.includes(job))
    if (taken.code === 'OK') return taken
    registered = undefined
    return undefined
  }
  const putBack = async (jobs: Refused[]) => {
    if (index && registered !== undefined && jobs.length > 0) await index.putBack(registered, id, jobs)
  }

  return {
    id,
    key: worker,
    get facts() {
      return facts
    },
    set facts(now) {
      facts = now
    },
    get registered() {
      return registered
    },
    async register(generation) {
      if (!index) return
      if ((await index.register(generation, id, mutable(facts))) !== 'OK') return
      if (registered !== generation) {
        done = []
        freed.clear()
        refused = []
      }
      registered = generation
    },
    async begin(said, limit) {
      const outcomes = joined(unclear, said)
      unclear = []
      const straight = { by: this, outcomes, limit }
      if (limit === 0 || registered === undefined) return straight
      const ending = new Map<number, number>()
      for (const outcome of outcomes) {
        const lane = limitedRuns.get(key(outcome))
        if (lane !== undefined) countUp(ending, lane, 1)
      }
      const taken = await take(limit, ending)
      if (!taken) return straight
      if (taken.goesStraight && taken.ids.length === 0) return { ...straight, isStraight: true }
      for (const [lane, used] of taken.limited) {
        limitedLanes.add(lane)
        if (used > 0) countUp(freed, lane, -used)
      }
      return taken.ids.length === 0
        ? { ...straight, limit: 0 }
        : { ...straight, named: { ids: taken.ids, lanes: taken.lanes } }
    },
    async beginOffered(job, limit) {
      const outcomes = unclear.splice(0)
      if (!index || registered === undefined) return { by: this, outcomes, limit }
      const told = done.splice(0)
      const { code } = await index.takeOffered({
        generation: registered,
        worker: id,
        limit,
        running: limitedRuns.size,
        job,
        done: told,
      })
      refused = refused.filter(no => no.id !== job.id)
      if (code !== 'OK') registered = undefined
      return { by: this, outcomes, limit, named: { ids: [job.id], lanes: [job.lane] } }
    },
    send: ({ outcomes, limit, named }) => settleAndClaim(pool, 'longshore', worker, outcomes, limit, named),
    async accept({ outcomes, limit, named, isStraight }, answer) {
      if (isStraight && answer.claimed.length < limit && answer.wait !== 'more') hasComeShort = true
      for (const outcome of outcomes) {
        const lane = limitedRuns.get(key(outcome))
        if (lane === undefined || answer.busy.has(outcome.id)) continue
        limitedRuns.delete(key(outcome))
        countUp(freed, lane, 1)
      }
      if (!named) return
      if (answer.wait === 'dead') return putBack(named.ids.map(job => ({ id: job, answer: 'unclear' })))
      const full: Refused[] = []
      for (const [at, job] of named.ids.entries()) {
        const lane = named.lanes[at] as number
        const no = answer.refused.find(one => one.id === job)
        if (no) {
          if (no.answer === 'full') full.push(no)
          else refused.push(no)
          continue
        }
        done.push(job)
        if (!limitedLanes.has(lane)) continue
        const run = answer.claimed.find(one => one.id === job)
        if (run) limitedRuns.set(key(run), lane)
        else countUp(freed, lane, 1)
      }
      await putBack(full)
    },
    async giveUp({ outcomes, named }) {
      unclear = joined(unclear, outcomes)
      await putBack((named?.ids ?? []).map(job => ({ id: job, answer: 'unclear' })))
    },
    async tell() {
      await putBack(refused.splice(0))
      await take(0, new Map())
    },
    async leave() {
      await this.tell()
      if (registered !== undefined) await index?.unregister(id)
      registered = undefined
    },
  }
}

/** One of each job: a worker does not say two things of it at once. */
const joined = (before: readonly Outcome[], said: readonly Outcome[]) => [
  ...before.filter(one => said.every(other => other.id !== one.id)),
  ...said,
]

const mutable = ({ tasks, tags, constraintTags }: ModelWorker) => ({
  tasks: [...tasks],
  tags: [...tags],
  constraintTags: [...constraintTags],
})
