/** The verbs *settle* and *claim*, in one round trip: end runs, and be handed the next jobs. */
import type { StoredError } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import type { ReadyJob } from '../job/ready-job.ts'
import type { TextQueryable } from './connect.ts'
import { inSchema } from './schema-name.ts'
import type { WorkerKey } from './secret.ts'

/** One claim of a job: its token is above any that the job had before. */
export interface Lease {
  readonly id: JobId
  readonly leaseToken: string
}

/** How a run ended, as the worker that held the lease reports it. */
export type Outcome = Lease &
  (
    | { kind: 'succeeded' /** JSON text, or null for none. */; result: string | null }
    | { kind: 'failed'; error: StoredError }
    | { kind: 'retry'; error: StoredError; delayMs: number }
    /** Given back: no attempt is used. With a delay where this worker cannot run it and others should come first. */
    | { kind: 'released'; delayMs?: number }
  )

/** Values as Postgres sent them: most are needed once, some never. */
export interface ClaimedJob {
  id: JobId
  lane: number
  leaseToken: string
  attempt: number
  maxAttempts: number
  score: number
  createdAt: string
  /** JSON text; empty where it is so large that it must be read apart, with `readPayload`. */
  payload: string
  /** Workers died with it twice: it must run alone in its process. */
  mustRunAlone: boolean
  /** Only where this worker traces. */
  trace: ClaimedTrace | undefined
}

/** What the spans of a job are made of. Times are those of the database. */
export interface ClaimedTrace {
  /** Since when it was to run. */
  readySinceMs: number
  claimedAtMs: number
  queue: string
  /** What `traceEnqueue` stored. */
  stored: string | null
}

export interface Exchange {
  claimed: ClaimedJob[]
  /** Another transaction locked these rows just now: settle them again. */
  busy: Set<string>
  /** The lease was gone: nothing was changed, and nothing can be. */
  lost: Set<string>
  /**
   * What the claim says beside its jobs. `dead`: this worker is taken for dead and gets nothing any more; `busy`: look
   * again in a moment; `more`: look again at once; `full`: jobs wait for a limit, and a slot that is freed rings.
   */
  wait: 'dead' | 'busy' | 'more' | 'full' | null
  /** Named by Redis, ready, and not handed over. What is neither claimed nor here is gone. */
  refused: (ReadyJob & { answer: 'busy' | 'full' | 'moved' })[]
  /** What the settled runs made ready; of very many only the first. */
  ready: ReadyJob[]
  /** Groups that may be at their end, see `closeGroups`. */
  groups: string[]
}

/** Jobs that Redis named for this worker. */
export interface Named {
  ids: readonly JobId[]
  lanes: readonly number[]
}

const CALL = 'select * from longshore.settle_and_claim($1, $2, $3, $4, $5, $6, p_secret => $7, p_from => $8)'
const CALL_THESE =
  'select * from longshore.settle_and_claim($1, $2, $3, $4, $5, $6, p_secret => $7, p_these => $8, p_lanes => $9)'
const traced = (call: string) => call.replace(')', ', p_is_traced => true)')

/**
 * Settle `outcomes` and claim at most `limit` jobs, or those that were named. Safe to repeat: what was settled before is not
 * settled again. `isTraced`: bring what their spans are made of. `from`: jobs with a lower score need not be looked at.
 */
export async function settleAndClaim(
  db: TextQueryable,
  schema: string,
  worker: WorkerKey,
  outcomes: readonly Outcome[],
  limit: number,
  named?: Named,
  isTraced = false,
  from: number | null = null,
): Promise<Exchange> {
  const call = named ? CALL_THESE : CALL
  const text = inSchema(schema, isTraced ? traced(call) : call)
  const values = [worker.id, ...settleArguments(outcomes), limit, worker.secret]
  const [row] = named
    ? await db.queryTexts(text, [
        ...values,
        `{${named.ids.join(',')}}`,
        `{${[...new Set(named.lanes)].join(',')}}`,
      ])
    : await db.queryTexts(text, [...values, from])
  if (!row) throw new Error('settle_and_claim answered nothing')
  const [busy, lost, wait, ready, groups, refused, alone, ...claim] = row
  return {
    refused: (refused?.split(',') ?? []).map(item => {
      const [id, answer, ...place] = item.split(' ')
      return { ...toReady([id, ...place]), answer: answer as 'busy' | 'full' | 'moved' }
    }),
    ready: (ready?.split(',') ?? []).map(item => toReady(item.split(' '))),
    groups: groups?.split(',') ?? [],
    claimed: toClaimedJobs(claim as string[], alone?.split(',') ?? NOBODY),
    busy: new Set(busy?.split(',')),
    lost: new Set(lost?.split(',')),
    wait: (wait ?? null) as Exchange['wait'],
  }
}

const NOBODY: readonly string[] = []

const toReady = ([id, lane, score, leaseToken]: (string | undefined)[]): ReadyJob => ({
  id: id as JobId,
  lane: Number(lane),
  score: String(score),
  leaseToken: String(leaseToken),
})

/** A claim travels as one row of joined texts, see `claim.sql`. */
function toClaimedJobs(
  [tokens, ids, lanes, attempts, maxAttempts, scores, createdAts, payloads, traces]: string[],
  alone: readonly string[],
): ClaimedJob[] {
  if (!ids) return []
  const columns = [lanes, attempts, maxAttempts, scores, createdAts].map(text => text?.split(',') ?? [])
  const [lane = [], attempt = [], most = [], score = [], createdAt = []] = columns
  const payload = payloads?.split('\n') ?? []
  const token = (tokens ?? '').split(',').flatMap(text => {
    const [value = '', jobs] = text.split('*')
    return new Array<string>(Number(jobs)).fill(value)
  })
  const trace = traces ? (JSON.parse(traces) as Record<string, StoredTrace>) : undefined
  return ids.split(',').map((id, n) => ({
    id: id as JobId,
    lane: Number(lane[n] ?? lane[0]),
    leaseToken: token[n] as string,
    attempt: Number(attempt[n]),
    maxAttempts: Number(most[n]),
    score: Number(score[n]),
    createdAt: createdAt[n] as string,
    payload: payload[n] as string,
    mustRunAlone: alone.length > 0 && alone.includes(id),
    trace: trace && toTrace(trace[id]),
  }))
}

/** As `read_traces.sql` writes it. */
type StoredTrace = [readySinceMs: number, claimedAtMs: number, queue: string, stored: string | null]

function toTrace(trace: StoredTrace | undefined): ClaimedTrace | undefined {
  if (!trace) return undefined
  const [readySinceMs, claimedAtMs, queue, stored] = trace
  return { readySinceMs, claimedAtMs, queue, stored }
}

/** The payload of a job that this worker runs; undefined when the lease is gone. */
export async function readPayload(
  db: TextQueryable,
  schema: string,
  worker: WorkerKey,
  job: ClaimedJob,
): Promise<string | undefined> {
  const [row] = await db.queryTexts(inSchema(schema, 'select longshore.read_payload($1, $2, $3, $4)'), [
    worker.id,
    job.id,
    job.leaseToken,
    worker.secret,
  ])
  return row?.[0] ?? undefined
}

/** Successes travel as arrays in id order, with the few results in a map; whatever else ended travels as a list. */
function settleArguments(outcomes: readonly Outcome[]): [string, string, string | null, string | null] {
  const succeeded: (Outcome & { kind: 'succeeded' })[] = []
  const others: object[] = []
  for (const outcome of outcomes) {
    switch (outcome.kind) {
      case 'succeeded':
        succeeded.push(outcome)
        break
      case 'failed':
        others.push({ id: outcome.id, token: outcome.leaseToken, outcome: 'failed', error: outcome.error })
        break
      case 'retry':
        others.push({
          id: outcome.id,
          token: outcome.leaseToken,
          outcome: 'retry',
          error: outcome.error,
          delayMs: outcome.delayMs,
        })
        break
      case 'released':
        others.push({
          id: outcome.id,
          token: outcome.leaseToken,
          outcome: 'released',
          delayMs: outcome.delayMs,
        })
        break
    }
  }
  succeeded.sort((a, b) => (a.id < b.id ? -1 : 1)) // as settle.sql needs them; mostly they are in order
  const results: string[] = []
  for (const { id, result } of succeeded) if (result !== null) results.push(`"${id}":${result}`)
  return [
    `{${succeeded.map(outcome => outcome.id).join(',')}}`,
    `{${succeeded.map(outcome => outcome.leaseToken).join(',')}}`,
    results.length > 0 ? `{${results.join(',')}}` : null,
    others.length > 0 ? JSON.stringify(others) : null,
  ]
}
