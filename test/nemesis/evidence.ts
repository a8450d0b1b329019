/**
 * Owns what a run under faults leaves behind: what producers asked for and were told, which handlers ran, which faults there
 * were, and what Postgres remembers. Everything that `total-queue.ts` judges by, and nothing else.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import type { EdgePolicy } from '../../src/index.ts'
import type { JournalRun } from '../support/journal.ts'

/** How a job is to go: `complete` writes an effect in the transaction that ends it, `flaky` fails its first attempt. */
export type Way = 'succeed' | 'complete' | 'flaky' | 'fail'

export interface Payload {
  /** Unique over the whole run: who finds a job knows which call it comes from. */
  key: string
  way: Way
  ms: number
  /** Does not listen to its signal. */
  isStubborn: boolean
}

export interface AskedJob {
  key: string
  way: Way
  /** Keys of the jobs that it runs after. */
  parents?: [key: string, policy: EdgePolicy][]
  workflow?: string
}

/**
 * A line in the journal of a producer; what it asks for is written before it asks. A call is all or nothing. Times of all processes in
 * milliseconds since 1970, by the machine's clock.
 */
export type CallLine =
  | { e: 'call'; call: string; at: number; jobs: AskedJob[]; group?: string; isInTransaction?: boolean }
  /** The commit is being sent. Without this line a transaction never was committed. */
  | { e: 'commit'; call: string }
  | { e: 'acknowledged'; call: string; at: number; ids: string[] }
  /** It was told that nothing was done. */
  | { e: 'refused'; call: string; because: string }
  /** It was not told what was done. */
  | { e: 'unclear'; call: string; because: string }
  /** Of any call: it failed with what no fault explains. */
  | { e: 'failed'; call: string; because: string }
  /** Somebody is about to ask for it. */
  | { e: 'cancel'; key?: string; group?: string }

/** A line in the effect log of a worker process; `run` counts what it has started. */
export type EffectLine = { run: number; job: string; attempt: number; worker: string; at: number } & (
  | { e: 'start'; key: string }
  | { e: 'end'; how: HandlerEnd }
)

/** `planned`: as its payload says; `threw`: something else failed; otherwise the code that its signal fired with. */
export type HandlerEnd = 'returned' | 'planned' | `threw ${string}` | (string & {})

/** What was done to whom, and when. */
export interface FaultLine {
  kind: string
  /** Processes that it may have kept from working; none: all of them. */
  targets: string[]
  from: number
  to: number
  /** Why it was not done. */
  missed?: string
}

export interface EndedJob {
  id: string
  key: string | null
  state: string
  token: number
  errorCode: string | null
  group: string | null
  workflow: number | null
  workflowSeq: number | null
  /** The lease tokens of the transactions that wrote its effects. */
  effects: number[]
}

/** A life of a worker, as Postgres saw it. Times in milliseconds since 1970, by its clock. */
export interface Life {
  id: number
  name: string
  leaseMs: number
  /** When it was taken for dead, and when its lease had run out by then. */
  deadAt: number | null
  expiredAt: number | null
}

/** A limit allowed so much from then on; times as in `JournalRun`. */
export interface Capacity {
  task: string
  key: string
  capacity: number
  at: number
}

export interface Evidence {
  calls: CallLine[]
  effects: EffectLine[]
  faults: FaultLine[]
  ended: EndedJob[]
  /** Unfinished jobs. */
  left: { id: string; key: string | null; state: string }[]
  groups: { id: string; endState: string | null; counted: number }[]
  runs: JournalRun[]
  lives: Life[]
  capacities: Capacity[]
}

/** A process measures time from its start, Postgres reads the clock: so much they may be apart. */
export const CLOCKS_APART_MS = 50

/** By the machine's clock, also in a process whose `Date` is wrong. */
export const trueNow = () => performance.timeOrigin + performance.now()

/** Lines of JSON, each handed to the system before the call returns: a SIGKILL loses none. */
export const lineWriter =
  <Line>(file: string) =>
  (line: Line): void =>
    appendFileSync(file, `${JSON.stringify(line)}\n`)

export function readLines<Line>(file: string): Line[] {
  if (!existsSync(file)) return []
  const lines = readFileSync(file, 'utf8').split('\n')
  // What was being written when the process was killed has no end.
  return lines.slice(0, -1).map(line => JSON.parse(line) as Line)
}
