/**
 * Owns the reasons for runs: every run of a handler belongs to one claim in the journal, every claim beyond a job's first to
 * something that ended the run before it, and whatever took a job from its worker to something that was done to that worker.
 */
import type { JournalRun } from '../support/journal.ts'
import { CLOCKS_APART_MS, type Evidence, type FaultLine, type HandlerEnd, type Life } from './evidence.ts'
import type { Find } from './total-queue.ts'

export interface RunCounts {
  /** Handlers that were started, and claims. */
  starts: number
  claims: number
  /** Attempts that failed as their jobs had planned. */
  plannedRetries: number
  /** Starts beyond the first and the planned, by what explains them. */
  duplicates: Record<string, number>
  rescues: number
}

/** What can cost a worker its lease. A wrong clock, a Redis that is away or a lost reply must not. */
const COSTS_LEASE = new Set(['kill', 'pause', 'stop', 'hole postgres', 'crash postgres', 'swallow postgres'])
/** What can break a transaction of a handler's. */
const BREAKS_CALLS = new Set([...COSTS_LEASE, 'cut postgres', 'slow postgres', 'lose'])
/** A fault is felt a little longer than it lasts: what it broke has to be noticed and built up again. */
const AFTERMATH_MS = 5000

export function findRunProblems(evidence: Evidence, find: Find): RunCounts {
  const lives = new Map(evidence.lives.map(life => [life.id, life]))
  const handled = matchStarts(evidence, lives, find)
  const byJob = new Map<string, JournalRun[]>()
  for (const run of evidence.runs) {
    const list = byJob.get(run.jobId)
    if (list) list.push(run)
    else byJob.set(run.jobId, [run])
  }
  const counts: RunCounts = {
    starts: evidence.effects.filter(line => line.e === 'start').length,
    claims: evidence.runs.length,
    plannedRetries: 0,
    duplicates: {},
    rescues: evidence.runs.filter(run => run.isRescued).length,
  }

  for (const [job, runs] of byJob) {
    for (const [at, run] of runs.entries()) {
      const handler = handled.get(run)
      if (run.isRescued) checkRescue(run, lives.get(run.worker), find)
      if (at === runs.length - 1) continue
      const reason = reasonFor(run, handler, evidence.faults, lives)
      if (reason === undefined) {
        const how = handler ? `its handler: ${handler.how ?? 'did not return'}` : 'its handler did not start'
        find(
          'it was run again without a reason',
          job,
          `after token ${run.token}, worker ${run.worker}; ${how}`,
        )
      }
      // Only what was started and is started again is a duplicate.
      if (!handler || !runs.slice(at + 1).some(later => handled.has(later))) continue
      if (reason === 'planned') counts.plannedRetries++
      else counts.duplicates[reason ?? 'none'] = (counts.duplicates[reason ?? 'none'] ?? 0) + 1
    }
  }
  checkEnds(evidence, byJob, handled, find)
  checkLimits(evidence, find)
  return counts
}

interface Handled {
  run: number
  startedAt: number
  /** Undefined: it was cut short. */
  how: HandlerEnd | undefined
}

/** Which claim each start of a handler belongs to. More starts than claims: something ran that Postgres did not hand over. */
function matchStarts(
  { runs, effects }: Evidence,
  lives: ReadonlyMap<number, Life>,
  find: Find,
): Map<JournalRun, Handled> {
  const place = (job: string, worker: string, attempt: number) => `${job} ${worker} ${attempt}`
  const claims = new Map<string, JournalRun[]>()
  for (const run of runs) {
    const at = place(run.jobId, lives.get(run.worker)?.name ?? String(run.worker), run.attempt)
    const list = claims.get(at)
    if (list) list.push(run)
    else claims.set(at, [run])
  }
  const starts = new Map<string, Handled[]>()
  for (const line of effects) {
    const at = place(line.job, line.worker, line.attempt)
    const list = starts.get(at) ?? []
    starts.set(at, list)
    if (line.e === 'start') list.push({ run: line.run, startedAt: line.at, how: undefined })
    else {
      const open = list.find(({ run }) => run === line.run)
      if (open) open.how = line.how
    }
  }
  const matched = new Map<JournalRun, Handled>()
  for (const [at, list] of starts) {
    // An attempt that was given back may have been claimed again by the same process: later claims have later starts.
    const free = [...(claims.get(at) ?? [])]
    for (const handled of list.sort((a, b) => b.startedAt - a.startedAt)) {
      const run = free.findLast(({ startedAt }) => startedAt / 1000 <= handled.startedAt + CLOCKS_APART_MS)
      if (!run) {
        const [job = '', ...rest] = at.split(' ')
        find('it ran without a claim', job, `${rest.join(', attempt ')}: ${list.length} starts`)
        continue
      }
      free.splice(free.indexOf(run), 1)
      matched.set(run, handled)
    }
  }
  return matched
}

/** What explains that the job was claimed again after this run. */
function reasonFor(
  run: JournalRun,
  handler: Handled | undefined,
  faults: readonly FaultLine[],
  lives: ReadonlyMap<number, Life>,
): string | undefined {
  const life = lives.get(run.worker)
  const endedAt = (run.endedAt ?? 0) / 1000
  if (run.isRescued) {
    const leaseMs = life?.leaseMs ?? 0
    const fault = faultOn(COSTS_LEASE, faults, life?.name, endedAt - leaseMs - AFTERMATH_MS, endedAt)
    // The lease had run out, see checkRescue: the machine was too busy to beat in time.
    return fault ? `rescued after ${fault.kind}` : 'rescued, no fault near'
  }
  if (run.isGivenBack) {
    if (!handler) return 'given back before it started'
    if (handler.how === 'WORKER_STOPPED' || isStopped(faults, life, endedAt))
      return 'given back by a worker that was stopped'
    if (handler.how === 'LEASE_LOST') return 'given back by a worker that lost its lease'
    return undefined
  }
  if (handler?.how === 'planned') return 'planned'
  if (handler?.how?.startsWith('threw')) {
    const fault = faultOn(BREAKS_CALLS, faults, life?.name, handler.startedAt, endedAt)
    const near = fault ? `after ${fault.kind}` : `no fault near: it ${handler.how}`
    return `its completion could not be written, ${near}`
  }
  return undefined
}

const isStopped = (faults: readonly FaultLine[], life: Life | undefined, at: number) =>
  faults.some(
    ({ kind, targets, from }) => kind === 'stop' && from <= at && targets.includes(life?.name ?? ''),
  )

function faultOn(
  kinds: ReadonlySet<string>,
  faults: readonly FaultLine[],
  worker: string | undefined,
  from: number,
  to: number,
): FaultLine | undefined {
  const near = faults.filter(
    fault =>
      !fault.missed &&
      kinds.has(fault.kind) &&
      fault.from <= to &&
      fault.to + AFTERMATH_MS >= from &&
      (fault.targets.length === 0 || (worker !== undefined && fault.targets.includes(worker))),
  )
  // Rather what was done to this very process.
  return near.find(({ targets }) => targets.length > 0) ?? near[0]
}

function checkRescue(run: JournalRun, life: Life | undefined, find: Find): void {
  if (life?.deadAt != null && life.expiredAt != null && life.expiredAt <= life.deadAt) return
  find(
    'it was rescued from a worker whose lease had not run out',
    run.jobId,
    JSON.stringify(life ?? run.worker),
  )
}

/** At most one accepted completion per token, by the newest token, of a handler that ran. */
function checkEnds(
  { ended }: Evidence,
  byJob: ReadonlyMap<string, JournalRun[]>,
  handled: ReadonlyMap<JournalRun, Handled>,
  find: Find,
): void {
  for (const [job, runs] of byJob) {
    const ends = runs.filter(({ wentTo }) => wentTo === 'ended').length
    if (ends > 1) find('it was completed twice', job, `${ends} of its runs`)
    if (new Set(runs.map(({ token }) => token)).size < runs.length) find('a token was given twice', job)
  }
  for (const { id, state, token } of ended) {
    const last = byJob.get(id)?.at(-1)
    if (last && last.token !== token)
      find('its completion was accepted of an older claim', id, `token ${token}, the newest is ${last.token}`)
    if (state !== 'succeeded') continue
    if (!last) find('it succeeded without a claim', id)
    else if (!handled.has(last)) find('it succeeded, and its handler did not run', id, `token ${token}`)
    else if (handled.get(last)?.how === 'planned')
      find('it succeeded, and its handler failed', id, `token ${token}`)
  }
}

/** A limit is written down when it is changed. A claim knows of that when the change has been committed, and on a crowded machine that takes a while. */
const COMMITTED_WITHIN = 1_000_000 // microseconds

/** Whenever a job of a limited task or key started, no more ran than its limit allowed when it was claimed. */
function checkLimits({ runs, capacities }: Evidence, find: Find): void {
  const limits = new Map<string, { at: number; capacity: number }[]>()
  for (const { task, key, at, capacity } of capacities) {
    const list = limits.get(`${task}\n${key}`) ?? []
    list.push({ at, capacity })
    limits.set(`${task}\n${key}`, list)
  }
  for (const [limit, changes] of limits) {
    const [task, key] = limit.split('\n')
    const moments = runs
      .filter(run => run.task === task && (key === '' || run.key === key))
      .flatMap(run => [
        { at: run.startedAt, step: 1, run },
        { at: run.endedAt ?? Number.POSITIVE_INFINITY, step: -1, run },
      ])
      .sort((a, b) => a.at - b.at || a.step - b.step)
    let running = 0
    for (const { at, step, run } of moments) {
      running += step
      if (step < 0) continue
      const known = changes.findLastIndex(change => change.at <= run.claimBeganAt - COMMITTED_WITHIN)
      const mayBe = changes.slice(Math.max(0, known)).filter(change => change.at <= at)
      const capacity =
        known < 0 ? Number.POSITIVE_INFINITY : Math.max(...mayBe.map(change => change.capacity))
      if (running > capacity)
        find('a limit was exceeded', run.jobId, `${task} ${key}: ${running} ran at once, ${capacity} may`)
    }
  }
}
