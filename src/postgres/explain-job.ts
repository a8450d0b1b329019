/** The verb *explain*: why a job is not running, where it runs, or how it ended. */
import { parseConstraintTag } from '../job/constraints.ts'
import type { Explanation, Lacking, NamedJob, NamedWorker, Reason, SlotHolder } from '../job/explanation.ts'
import type { FinishedState } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

const MOST_NAMED = 20

/** Undefined: there is no such job, or its history has been dropped. */
export async function explainJob(db: Queryable, schema: string, id: JobId): Promise<Explanation | undefined> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.explain($1) as facts'), [id])
  const facts = rows[0]?.['facts'] as Facts | null
  if (!facts) return undefined
  const reasons = reasonsOf(facts)
  const sentences = reasons.map(({ sentence }) => sentence)
  const summary = `job ${facts.id} of task ${facts.task} is ${facts.state}: ${sentences.join('; ')}`
  return { id: facts.id, task: facts.task, state: facts.state, summary, reasons }
}

/** What `explain.sql` and `explain_end.sql` tell. */
type Facts = { id: JobId; task: string; attempts: number } & (
  | ({ state: 'waiting'; pending: number; dependencies: { count: number; jobs: NamedJob[] } } & NotStarted)
  | ({ state: 'scheduled' } & NotStarted)
  | ({
      state: 'ready'
      ahead: number
      limits: FullLimit[]
      noted: { since: string; hasRelay: boolean } | null
    } & NotStarted)
  | { state: 'running'; run: Run; hasUpkeep: boolean }
  | { state: FinishedState; end: End; parent?: Blamed; cause?: Blamed }
)

interface NotStarted {
  queue: string
  tag: string
  constraintTag: string
  runAt: string
  isDue: boolean
  maxAttempts: number
  error: string | null
  hasUpkeep: boolean
  workflow?: {
    key: string
    /** Null also where it is a job that this user may not see: then only `isHeld` tells. So with `haltedBy`. */
    holder: NamedJob | null
    isHeld: boolean
    ahead: number
    haltedBy: { id: JobId; task: string | null; error: string | null } | null
    isHalted: boolean
  }
  workers: {
    live: number
    serving: number
    count: number
    some: NamedWorker[]
    drained: NamedWorker[]
    /** Of a job that must run alone: those of `count` that cannot. */
    stuck: { rescues: number; workers: (NamedWorker & { handlers: number; since: string })[] } | null
    closest: (NamedWorker & { hasQueue: boolean; hasTag: boolean; properties: Record<string, string> }) | null
    /** How many of those that serve the task have each thing that the job asks for. */
    having: { queue: number; tag: number; keys: Record<string, number> }
  }
}

interface FullLimit {
  key: string
  capacity: number
  used: number
  holders: SlotHolder[]
}

interface Run {
  workerId: number
  workerName: string | null
  since: string
  isLive: boolean
  isCancelled: boolean
  /** It has not begun: it must run alone, and `others` handlers are inside. */
  waitsAlone: boolean
  others: number | null
}

interface End {
  at: string
  workerId: number | null
  error: string | null
}

type Blamed = NamedJob & { error: string | null }

function reasonsOf(facts: Facts): Reason[] {
  switch (facts.state) {
    case 'waiting': {
      const { dependencies, workflow, pending } = facts
      const waits = [...dependencyReasons(dependencies), ...workflowReasons(workflow)]
      if (waits.length === 0) waits.push(miscounted(pending))
      return [...waits, ...dueReasons(facts), ...workerReasons(facts)]
    }
    case 'scheduled':
      return [...dueReasons(facts), ...workerReasons(facts)]
    case 'ready': {
      const kept = [...workerReasons(facts), ...facts.limits.map(limit => limitReason(facts.task, limit))]
      const noted = facts.noted ? [notPlaced(facts.noted)] : []
      return kept.length > 0 ? kept : [...noted, readyReason(facts)]
    }
    case 'running':
      return [...(facts.run.isCancelled ? [CANCELLING] : []), runReason(facts.run, facts.hasUpkeep)]
    default:
      return [endReason(facts)]
  }
}

function dependencyReasons({ count, jobs }: { count: number; jobs: NamedJob[] }): Reason[] {
  if (count === 0) return []
  const which = jobs.length > 0 ? listed(jobs.map(shownJob), count) : 'of other users'
  const sentence = `it waits for ${many(count, 'job')} to end: ${which}`
  return [{ kind: 'dependencies', count, jobs, sentence }]
}

function workflowReasons(workflow: NotStarted['workflow']): Reason[] {
  if (!workflow) return []
  const { key, holder, isHeld, ahead, haltedBy, isHalted } = workflow
  const reasons: Reason[] = []
  if (isHalted) {
    const why = haltedBy?.error ? ` (${haltedBy.error})` : ''
    const which = haltedBy ? `job ${haltedBy.id}${why}` : `${OTHERS_JOB}, so its user must let it go on`
    const sentence =
      `its workflow ${key} was halted by the failure of ${which}: let it go on with ` +
      `producer.resumeWorkflow(${JSON.stringify(key)}) or \`longshore workflows ${shellWord(key)} --resume\``
    reasons.push({ kind: 'halted', workflow: key, haltedBy: haltedBy?.id ?? null, sentence })
  }
  // A halted workflow's turn may still be with a job that has not ended.
  if (isHeld || !isHalted) {
    const who = holder
      ? `job ${shownJob(holder)} has it`
      : isHeld
        ? `${OTHERS_JOB} has it`
        : 'nobody has it, which ought not to be: longshore doctor --repair'
    const more =
      ahead === 0 ? '' : `, and then ${ahead === 1 ? '1 other comes' : `${ahead} others come`} first`
    const sentence = `it waits for its turn in workflow ${key}: ${who}${more}`
    reasons.push({ kind: 'turn', workflow: key, holder, ahead, sentence })
  }
  return reasons
}

function miscounted(pending: number): Reason {
  const sentence = `it waits for ${pending}, and nothing that it waits for is open: longshore doctor --repair`
  return { kind: 'miscounted', pending, sentence }
}

function dueReasons(facts: NotStarted & { state: string; attempts: number }): Reason[] {
  const { isDue, attempts, maxAttempts, error, hasUpkeep } = facts
  if (isDue && facts.state !== 'scheduled') return []
  const at = new Date(facts.runAt)
  const after =
    attempts > 0 && error !== null ? `, since attempt ${attempts} of ${maxAttempts} failed (${error})` : ''
  const late = hasUpkeep
    ? 'is about to be made ready'
    : 'nobody does the upkeep that makes it ready: start a worker or `longshore relay`'
  const sentence = isDue
    ? `it has been due since ${at.toISOString()}, and ${late}`
    : `it is due at ${at.toISOString()}${after}`
  return [{ kind: 'due', at, error, sentence }]
}

function workerReasons(facts: NotStarted & { task: string }): Reason[] {
  const { task, queue, tag, workers } = facts
  const { closest } = workers
  if (workers.count > 0) return aloneReasons(workers)
  if (workers.drained.length > 0) return [drainedReason(workers.drained)]
  if (!closest) {
    const who =
      workers.live === 0
        ? 'no worker is alive'
        : `no live worker serves task ${task} (${workers.live} ${workers.live === 1 ? 'is' : 'are'} alive)`
    const sentence = `${who}: start one with a handler for task ${task}, createWorker({ handlers }) or \`longshore worker <module>\``
    return [{ kind: 'no_worker', lacking: { task }, closest: null, sentence }]
  }
  const asked = Object.entries(parseConstraintTag(facts.constraintTag))
  const lacks = asked.filter(([key, value]) => closest.properties[key] !== value)
  const lacking: Lacking = {
    ...(closest.hasQueue ? {} : { queue }),
    ...(closest.hasTag ? {} : { tag }),
    ...(lacks.length > 0 ? { constraints: Object.fromEntries(lacks) } : {}),
  }
  const { serving, having } = workers
  const wanted = [
    { what: `serves queue ${queue}`, count: having.queue },
    { what: `offers tag ${tag}`, count: having.tag },
    ...asked.map(([key, value]) => ({ what: `has ${key}=${value}`, count: having.keys[key] ?? 0 })),
  ].filter(({ count }) => count < serving)
  const unmet = wanted.filter(({ count }) => count === 0)
  const named = (some: typeof wanted) => some.map(({ what }) => what).join(' and ')
  // Where some worker has each of them, no worker has all of them.
  const missing = unmet.length > 0 ? named(unmet) : `${named(wanted)} at once`
  const has = [
    ...(closest.hasQueue || having.queue === 0 ? [] : [`no queue ${queue}`]),
    ...(closest.hasTag || having.tag === 0 ? [] : [`no tag ${tag}`]),
    ...lacks.map(([key]) => (key in closest.properties ? `${key}=${closest.properties[key]}` : `no ${key}`)),
  ]
  const nearest =
    `worker ${closest.id} (${closest.name}) comes closest` +
    (has.length > 0 ? `, with ${has.join(', ')}` : '')
  const sentence = `${many(serving, 'live worker')} ${serving === 1 ? 'serves' : 'serve'} task ${task}, but none ${missing}; ${nearest}`
  return [{ kind: 'no_worker', lacking, closest: { id: closest.id, name: closest.name }, sentence }]
}

function aloneReasons({ stuck, count }: NotStarted['workers']): Reason[] {
  if (!stuck || stuck.workers.length < count) return []
  const shown = stuck.workers.map(
    worker => `${shownWorker(worker)} with ${worker.handlers} since ${new Date(worker.since).toISOString()}`,
  )
  const sentence =
    `workers died with it ${stuck.rescues} times, so it must run alone, and every worker that may run it has handlers that ignored their ` +
    `signal and have not returned: ${listed(shown, count)}; restart one of them, or start another`
  const workers = stuck.workers.slice(0, MOST_NAMED).map(({ id, name }) => ({ id, name }))
  return [{ kind: 'alone', rescues: stuck.rescues, workers, sentence }]
}

function drainedReason(workers: NamedWorker[]): Reason {
  const names = listed(workers.map(shownWorker), workers.length)
  const sentence = `every worker that may run it is drained: ${names}; let one take jobs again with \`longshore resume ${workers[0]?.id}\``
  return { kind: 'drained', workers: workers.slice(0, MOST_NAMED), sentence }
}

function limitReason(task: string, { key, capacity, used, holders }: FullLimit): Reason {
  const whose = key === '' ? `task ${task}` : `task ${task} for key ${key}`
  const taken =
    used > capacity
      ? `${used} jobs of ${whose} run, and ${capacity} may since its limit was lowered`
      : capacity === 1
        ? `the only slot of ${whose} is taken`
        : `all ${capacity} slots of ${whose} are taken`
  const by = holders.map(({ id, workerId }) => `job ${id} on worker ${workerId}`)
  const sentence = `${taken}: ${by.length > 0 ? listed(by, used) : `by jobs of other users`}`
  return { kind: 'limit', key: key === '' ? null : key, capacity, used, holders, sentence }
}

function notPlaced({ since, hasRelay }: { since: string; hasRelay: boolean }): Reason {
  const next = hasRelay ? '' : '; no relay is leading: start `longshore relay`'
  const sentence = `it is not yet placed in Redis: an outbox row of ${new Date(since).toISOString()} names it${next}`
  return { kind: 'not_placed', since: new Date(since), sentence }
}

function readyReason({ workers, ahead }: { workers: NotStarted['workers']; ahead: number }): Reason {
  const { count, some } = workers
  const before = ahead === 0 ? '' : `, after ${many(ahead, 'job')} of its kind`
  const sentence = `nothing keeps it; ${many(count, 'live worker')} may take it${before}: ${listed(
    some.map(shownWorker),
    count,
  )}`
  return { kind: 'ready', count, workers: some, ahead, sentence }
}

const CANCELLING: Reason = {
  kind: 'cancelling',
  sentence:
    'it is being cancelled: its worker has been told, and however the run ends the job ends as cancelled',
}

function runReason({ workerId, workerName, since, isLive, ...run }: Run, hasUpkeep: boolean): Reason {
  const where = `worker ${workerId}${workerName === null ? '' : ` (${workerName})`}`
  const next = hasUpkeep
    ? 'it is about to be taken back'
    : 'nobody does the upkeep that takes it back: start a worker or `longshore relay`'
  const lost = isLive ? '' : `, whose lease has run out: ${next}`
  if (run.waitsAlone && isLive) {
    const others = Math.max(1, run.others ?? 1)
    const sentence =
      `${where} has claimed it and waits to run it alone, because workers died with it twice: ` +
      `${many(others, 'other handler')} ${others === 1 ? 'has' : 'have'} not returned; it is given back if they take longer than \`aloneDeadline\``
    return { kind: 'waits_alone', workerId, workerName, since: new Date(since), others, sentence }
  }
  const sentence = `it runs on ${where} since ${new Date(since).toISOString()}${lost}`
  return { kind: 'running', workerId, workerName, since: new Date(since), isWorkerLive: isLive, sentence }
}

function endReason({ end, parent, cause }: { end: End; parent?: Blamed; cause?: Blamed }): Reason {
  const at = new Date(end.at)
  const because = (job: Blamed) => `job ${shownJob(job)}${job.error === null ? '' : `: ${job.error}`}`
  const why = parent
    ? `, since it was to run after job ${shownJob(parent)}` + `; it began with ${because(cause ?? parent)}`
    : end.error === null
      ? ''
      : `: ${end.error}`
  return {
    kind: 'ended',
    at,
    error: end.error,
    parent: parent ? named(parent) : null,
    cause: cause ? named(cause) : null,
    sentence: `it ended at ${at.toISOString()}${why}`,
  }
}

/** A job that this user may not see. */
const OTHERS_JOB = 'a job of another user'

const named = ({ id, task, state }: NamedJob): NamedJob => ({ id, task, state })
const shownJob = ({ id, task, state }: NamedJob) => `${id} (${task}, ${state})`
const shownWorker = ({ id, name }: NamedWorker) => `${id} (${name})`
const many = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`

/** Only the first few: the others stand in the reason itself. */
function listed(items: string[], count: number): string {
  const shown = items.slice(0, 3)
  const more = count - shown.length
  return `${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

const shellWord = (text: string) => (/^[\w.:@/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)
