/**
 * The total-queue check: once everything has drained, every job that was asked for must be accounted for, every run of a handler
 * must have been claimed, and every run beyond the first must have a reason. A pure function of the evidence, so that tests can
 * doctor it.
 */
import { type AskedJob, type CallLine, CLOCKS_APART_MS, type EndedJob, type Evidence } from './evidence.ts'
import { findRunProblems, type RunCounts } from './run-reasons.ts'

export interface Finding {
  /** A few words, the same for all findings of the kind. */
  what: string
  /** Which job, call, group or worker. */
  who: string
  detail: string
}

export interface Verdict {
  findings: Finding[]
  counts: RunCounts & {
    calls: number
    acknowledged: number
    /** Jobs of calls whose caller was not told: found, and not found. */
    unclearFound: number
    unclearAbsent: number
    /** Jobs of calls that were rolled back or refused: none may be found. */
    refused: number
    endedAs: Record<string, number>
    groups: number
    effects: number
  }
}

type Fate = 'acknowledged' | 'refused' | 'unclear'

interface Call {
  line: CallLine & { e: 'call' }
  fate: Fate
  toldAt: number
  ids: string[]
}

export function checkTotalQueue(evidence: Evidence): Verdict {
  const findings: Finding[] = []
  const find = (what: string, who: string, detail = '') => findings.push({ what, who, detail })
  const calls = readCalls(evidence.calls)
  const asked = new Map<string, { job: AskedJob; call: Call }>()
  for (const call of calls.values()) for (const job of call.line.jobs) asked.set(job.key, { job, call })

  const ended = new Map<string, EndedJob>()
  for (const job of evidence.ended) {
    const key = String(job.key)
    const other = ended.get(key)
    if (other) find(other.id === job.id ? 'it ended twice' : 'it was enqueued twice', job.id, key)
    ended.set(key, job)
    if (!asked.has(key)) find('nobody has enqueued it', job.id, key)
  }
  for (const { id, key, state } of evidence.left) {
    find('it has not ended', id, `${key}, ${state}`)
    if (!asked.has(String(key))) find('nobody has enqueued it', id, `${key}, ${state}`)
  }
  for (const line of evidence.calls)
    if (line.e === 'failed') find('a call failed, and no fault explains it', line.call, line.because)
  for (const line of evidence.effects)
    if (line.e === 'start' && !asked.has(line.key))
      find('nobody has enqueued it, and it ran', line.job, line.key)

  const counts = {
    calls: calls.size,
    acknowledged: 0,
    unclearFound: 0,
    unclearAbsent: 0,
    refused: 0,
    endedAs: {} as Record<string, number>,
    groups: 0,
    effects: evidence.ended.reduce((sum, job) => sum + job.effects.length, 0),
  }
  for (const { state } of evidence.ended) counts.endedAs[state] = (counts.endedAs[state] ?? 0) + 1

  const unfinished = new Set(evidence.left.map(({ key }) => String(key)))
  const started = new Map<string, string>()
  for (const line of evidence.effects) if (line.e === 'start') started.set(line.key, line.job)
  for (const { line, fate, ids } of calls.values()) {
    const there = line.jobs.filter(({ key }) => ended.has(key) || unfinished.has(key))
    if (there.length > 0 && there.length < line.jobs.length && fate !== 'acknowledged')
      find('a part of a call was done', line.call, `${there.length} of ${line.jobs.length} jobs`)
    for (const [at, { key }] of line.jobs.entries()) {
      const end = ended.get(key)
      switch (fate) {
        case 'acknowledged':
          counts.acknowledged++
          if (!end && !unfinished.has(key)) find('it was acknowledged and is lost', ids[at] ?? key, key)
          if (end && end.id !== ids[at]) find('it has another id than was told', end.id, `${ids[at]}, ${key}`)
          break
        case 'refused':
          counts.refused++
          if (end || unfinished.has(key)) find('it was not committed and is there', end?.id ?? key, key)
          if (started.has(key)) find('it was not committed and ran', started.get(key) as string, key)
          break
        case 'unclear':
          if (end || unfinished.has(key)) counts.unclearFound++
          else counts.unclearAbsent++
          if (!end && !unfinished.has(key) && started.has(key))
            find('it ran and is lost', started.get(key) as string, key)
      }
    }
  }

  checkStates(evidence, asked, ended, find)
  counts.groups = checkGroups(evidence, calls, ended, find)
  checkOrders(calls, ended, find)
  const runs = findRunProblems(evidence, find)
  return { findings, counts: { ...counts, ...runs } }
}

export type Find = (what: string, who: string, detail?: string) => void

function readCalls(lines: readonly CallLine[]): Map<string, Call> {
  const calls = new Map<string, Call>()
  const committing = new Set<string>()
  for (const line of lines) {
    if (line.e === 'cancel' || line.e === 'failed') continue
    if (line.e === 'call') {
      // Of a transaction nothing is there until its commit is sent; of anything else nobody knows until it is told.
      const fate = line.isInTransaction ? 'refused' : 'unclear'
      calls.set(line.call, { line, fate, toldAt: Number.POSITIVE_INFINITY, ids: [] })
      continue
    }
    const call = calls.get(line.call)
    if (!call) throw new Error(`call ${line.call} was answered before it was made`)
    if (line.e === 'commit') {
      committing.add(line.call)
      call.fate = 'unclear'
    } else if (line.e === 'acknowledged') {
      call.fate = 'acknowledged'
      call.ids = line.ids
      call.toldAt = line.at
    } else if (line.e === 'refused') call.fate = 'refused'
    // What a transaction was told before its commit does not matter: it was not sent.
    else if (!call.line.isInTransaction || committing.has(line.call)) call.fate = 'unclear'
  }
  return calls
}

/** Each state must follow from the job's own plan, from what it ran after, or from a cancel. */
function checkStates(
  { calls }: Evidence,
  asked: ReadonlyMap<string, { job: AskedJob; call: Call }>,
  ended: ReadonlyMap<string, EndedJob>,
  find: Find,
): void {
  const cancelled = new Set<string>()
  for (const line of calls) if (line.e === 'cancel') cancelled.add(String(line.key ?? line.group))
  for (const [key, end] of ended) {
    const known = asked.get(key)
    if (!known) continue
    const { job, call } = known
    const isKeptBy = (policy: string) =>
      (job.parents ?? []).some(([parent, by]) => by === policy && ended.get(parent)?.state !== 'succeeded')
    const states: string[] = []
    if (isKeptBy('fail')) states.push('dependency_failed')
    if (isKeptBy('cancel')) states.push('cancelled')
    if (states.length === 0) states.push(job.way === 'fail' ? 'failed' : 'succeeded')
    if (cancelled.has(key) || (call.line.group && cancelled.has(call.line.group))) states.push('cancelled')
    if (!states.includes(end.state))
      find(
        'its state has no reason',
        end.id,
        `${job.way}, ${end.state} (${end.errorCode}), not ${states.join(' or ')}`,
      )
    const effects = job.way === 'complete' && end.state === 'succeeded' ? 1 : 0
    if (end.effects.length !== effects)
      find(
        'its effect is not there once',
        end.id,
        `${job.way}, ${end.state}: ${end.effects.length} effects, not ${effects}`,
      )
    else if (effects === 1 && end.effects[0] !== end.token)
      find('its effect is of another run', end.id, `token ${end.effects[0]}, it ended with ${end.token}`)
  }
}

function checkGroups(
  { groups }: Evidence,
  calls: ReadonlyMap<string, Call>,
  ended: ReadonlyMap<string, EndedJob>,
  find: Find,
): number {
  const told = new Map(groups.map(group => [group.id, group]))
  const jobs = new Map<string, number>()
  for (const { line } of calls.values()) {
    if (!line.group) continue
    const there = line.jobs.filter(({ key }) => ended.has(key)).length
    jobs.set(line.group, (jobs.get(line.group) ?? 0) + there)
  }
  let count = 0
  for (const [id, there] of jobs) {
    if (there === 0) continue
    count++
    const group = told.get(id)
    if (!group?.endState) find('its group has not ended', id)
    else if (group.counted !== there)
      find('its group has counted wrongly', id, `${group.counted}, not ${there}`)
  }
  return count
}

/** Whoever was told of one job of a workflow before another was asked for, by whichever process, stands before it. */
function checkOrders(
  calls: ReadonlyMap<string, Call>,
  ended: ReadonlyMap<string, EndedJob>,
  find: Find,
): void {
  const places = new Map<number, { id: string; seq: number; begunAt: number; toldAt: number }[]>()
  for (const { line, fate, toldAt } of calls.values()) {
    if (fate !== 'acknowledged') continue
    for (const { key } of line.jobs) {
      const end = ended.get(key)
      if (!end?.workflow) continue
      const list = places.get(end.workflow) ?? []
      list.push({ id: end.id, seq: end.workflowSeq ?? 0, begunAt: line.at, toldAt })
      places.set(end.workflow, list)
    }
  }
  for (const list of places.values()) {
    list.sort((a, b) => a.seq - b.seq)
    // The earliest acknowledgement among those that stand behind.
    let earliest: { id: string; toldAt: number } = { id: '', toldAt: Number.POSITIVE_INFINITY }
    for (const place of list.reverse()) {
      if (earliest.toldAt + CLOCKS_APART_MS < place.begunAt)
        find(
          'it stands before one that was there earlier',
          place.id,
          `of its workflow, before ${earliest.id}`,
        )
      if (place.toldAt < earliest.toldAt) earliest = place
    }
  }
}
