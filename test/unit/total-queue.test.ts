import { describe, expect, it } from 'vitest'
import type { Evidence } from '../nemesis/evidence.ts'
import { checkTotalQueue } from '../nemesis/total-queue.ts'

const at = (seconds: number) => 1_000_000 + seconds * 1000
/** Runs and limits are told in microseconds. */
const micro = (seconds: number) => at(seconds) * 1000

const run = (jobId: string, token: number, startedAt: number, endedAt: number) => ({
  jobId,
  task: 'plain',
  key: '',
  worker: 1,
  token,
  score: 0,
  claimBeganAt: micro(startedAt),
  startedAt: micro(startedAt),
  endedAt: micro(endedAt),
  wentTo: 'ended' as string | undefined,
  attempt: 1,
  isRescued: false,
  isGivenBack: false,
})
const start = (n: number, job: string, seconds: number, worker = 'worker-0.0', attempt = 1) => ({
  e: 'start' as const,
  run: n,
  job,
  key: `key ${job}`,
  attempt,
  worker,
  at: at(seconds) + 1,
})
const end = (n: number, job: string, seconds: number, how: string, worker = 'worker-0.0', attempt = 1) => ({
  e: 'end' as const,
  run: n,
  job,
  attempt,
  worker,
  at: at(seconds),
  how,
})
const ended = (id: string, token: number, more: Partial<Evidence['ended'][number]> = {}) => ({
  id,
  key: `key ${id}`,
  state: 'succeeded',
  token,
  errorCode: null,
  group: null,
  workflow: null,
  workflowSeq: null,
  effects: [],
  ...more,
})
const asked = (...ids: string[]) => ids.map(id => ({ key: `key ${id}`, way: 'succeed' as const }))

/**
 * What a sound run leaves: `a` ran once; `b` was on a worker that was killed, and ran again; `c` failed its first attempt as planned and
 * wrote its effect with the second; `d` was rolled back; nobody knows of `e` and `f`, of which one was done; `g` and `h` are a group.
 */
function sound(): Evidence {
  return {
    calls: [
      { e: 'call', call: '1', at: 500, jobs: asked('a', 'b') },
      { e: 'acknowledged', call: '1', at: 1000, ids: ['a', 'b'] },
      { e: 'call', call: '2', at: 1500, jobs: [{ key: 'key c', way: 'complete' }] },
      { e: 'acknowledged', call: '2', at: 2000, ids: ['c'] },
      { e: 'call', call: '3', at: 2500, jobs: asked('d'), isInTransaction: true },
      { e: 'call', call: '4', at: 3500, jobs: asked('e') },
      { e: 'call', call: '5', at: 4500, jobs: asked('f') },
      { e: 'unclear', call: '5', because: 'Connection terminated' },
      {
        e: 'call',
        call: '6',
        at: 5500,
        group: 'G',
        jobs: [
          { key: 'key g', way: 'fail', workflow: 'w' },
          { key: 'key h', way: 'succeed', parents: [['key g', 'fail']] },
        ],
      },
      { e: 'acknowledged', call: '6', at: 6000, ids: ['g', 'h'] },
    ],
    effects: [
      start(0, 'a', 1),
      end(0, 'a', 2, 'returned'),
      start(1, 'b', 1),
      start(0, 'b', 9, 'worker-1.0'),
      end(0, 'b', 10, 'returned', 'worker-1.0'),
      start(2, 'c', 1),
      end(2, 'c', 2, 'planned'),
      start(3, 'c', 3, 'worker-0.0', 2),
      end(3, 'c', 4, 'returned', 'worker-0.0', 2),
      start(1, 'e', 9, 'worker-1.0'),
      end(1, 'e', 10, 'returned', 'worker-1.0'),
      start(2, 'g', 9, 'worker-1.0'),
      end(2, 'g', 10, 'planned', 'worker-1.0'),
    ],
    faults: [{ kind: 'kill', targets: ['worker-0.0'], from: at(5), to: at(5) }],
    ended: [
      ended('a', 10),
      ended('b', 21),
      ended('c', 13, { effects: [13] }),
      ended('e', 22),
      ended('g', 23, { state: 'failed', group: 'G', workflow: 1, workflowSeq: 1 }),
      ended('h', 0, { state: 'dependency_failed', group: 'G' }),
    ],
    left: [],
    groups: [{ id: 'G', endState: 'failed', counted: 2 }],
    runs: [
      run('a', 10, 1, 2),
      { ...run('b', 11, 1, 8), wentTo: 'ready', isRescued: true },
      { ...run('c', 12, 1, 2), wentTo: 'scheduled' },
      { ...run('c', 13, 3, 4), attempt: 2 },
      { ...run('b', 21, 9, 10), worker: 2 },
      { ...run('e', 22, 9, 10), worker: 2 },
      { ...run('g', 23, 9, 10), worker: 2 },
    ],
    lives: [
      { id: 1, name: 'worker-0.0', leaseMs: 2000, deadAt: at(8), expiredAt: at(7) },
      { id: 2, name: 'worker-1.0', leaseMs: 2000, deadAt: null, expiredAt: null },
    ],
    capacities: [{ task: 'plain', key: '', capacity: 3, at: micro(0) }],
  }
}

/** What is wrong with the evidence after somebody has meddled with it. */
function findingsOf(doctor: (evidence: Evidence) => void): string[] {
  const evidence = sound()
  doctor(evidence)
  return checkTotalQueue(evidence).findings.map(({ what, who }) => `${who}: ${what}`)
}

const theRun = (evidence: Evidence, token: number) => {
  const found = evidence.runs.find(each => each.token === token)
  if (!found) throw new Error(`no run has token ${token}`)
  return found
}
const theEnd = (evidence: Evidence, id: string) => {
  const found = evidence.ended.find(each => each.id === id)
  if (!found) throw new Error(`${id} has not ended`)
  return found
}
const drop = <T>(list: T[], isMeant: (each: T) => boolean) => list.splice(list.findIndex(isMeant), 1)

describe('the total-queue check', () => {
  it('[L1] lets those start who could not know yet that a limit is being lowered', () => {
    const lowered = { task: 'plain', key: '', capacity: 2, at: micro(8.1) }
    expect(findingsOf(e => e.capacities.push(lowered))).toEqual([])
  })

  it('[X4] finds nothing in a sound run, and counts what it saw', () => {
    const { findings, counts } = checkTotalQueue(sound())
    expect(findings).toEqual([])
    expect(counts).toEqual({
      calls: 6,
      acknowledged: 5,
      unclearFound: 1,
      unclearAbsent: 1,
      refused: 1,
      endedAs: { succeeded: 4, failed: 1, dependency_failed: 1 },
      groups: 1,
      effects: 1,
      starts: 7,
      claims: 7,
      plannedRetries: 1,
      duplicates: { 'rescued after kill': 1 },
      rescues: 1,
    })
  })

  it.each<[what: string, doctor: (evidence: Evidence) => void, finding: string]>([
    ['a lost job', e => drop(e.ended, each => each.id === 'a'), 'a: it was acknowledged and is lost'],
    [
      'a job that is still there',
      e => e.left.push({ id: 'a', key: 'key a', state: 'ready' }),
      'a: it has not ended',
    ],
    [
      'a job from nowhere',
      e => e.ended.push(ended('x', 0, { state: 'cancelled' })),
      'x: nobody has enqueued it',
    ],
    ['a run from nowhere', e => e.effects.push(start(9, 'x', 9)), 'x: nobody has enqueued it, and it ran'],
    [
      'a job that was rolled back',
      e => e.ended.push(ended('d', 0, { state: 'cancelled' })),
      'd: it was not committed and is there',
    ],
    [
      'a run of one that was rolled back',
      e => e.effects.push(start(9, 'd', 9)),
      'd: it was not committed and ran',
    ],
    [
      'a job that an enqueue made twice',
      e => e.ended.push(ended('y', 0, { key: 'key a', state: 'cancelled' })),
      'y: it was enqueued twice',
    ],
    [
      'a half of a call',
      e => e.calls.splice(1, 1) && drop(e.ended, each => each.id === 'a'),
      '1: a part of a call was done',
    ],
    [
      'another id than was told',
      e => Object.assign(theEnd(e, 'a'), { id: 'z' }),
      'z: it has another id than was told',
    ],
    ['a run without a claim', e => e.effects.push(start(9, 'a', 3)), 'a: it ran without a claim'],
    [
      'a call that failed without a fault',
      e => e.calls.push({ e: 'failed', call: '5', because: 'JOB_INVALID' }),
      '5: a call failed, and no fault explains it',
    ],
    [
      'a second run without a reason',
      e => Object.assign(theRun(e, 11), { isRescued: false }),
      'b: it was run again without a reason',
    ],
    [
      'a run that was given back while its handler ran',
      e => Object.assign(theRun(e, 11), { isRescued: false, isGivenBack: true }),
      'b: it was run again without a reason',
    ],
    [
      'a retry of what did not fail',
      e => e.effects.splice(6, 1, end(2, 'c', 2, 'returned')),
      'c: it was run again without a reason',
    ],
    [
      'a rescue from the living',
      e => Object.assign(e.lives[0] ?? {}, { expiredAt: at(9) }),
      'b: it was rescued from a worker whose lease had not run out',
    ],
    [
      'a double completion',
      e => Object.assign(theRun(e, 11), { wentTo: 'ended' }),
      'b: it was completed twice',
    ],
    ['a second end', e => e.ended.push(ended('a', 10)), 'a: it ended twice'],
    [
      'a completion by an old token',
      e => Object.assign(theEnd(e, 'b'), { token: 11 }),
      'b: its completion was accepted of an older claim',
    ],
    ['a success of nobody', e => e.effects.splice(0, 2), 'a: it succeeded, and its handler did not run'],
    [
      'a success of a failure',
      e => e.effects.splice(1, 1, end(0, 'a', 2, 'planned')),
      'a: it succeeded, and its handler failed',
    ],
    ['a lost effect', e => Object.assign(theEnd(e, 'c'), { effects: [] }), 'c: its effect is not there once'],
    [
      'an effect twice',
      e => Object.assign(theEnd(e, 'c'), { effects: [12, 13] }),
      'c: its effect is not there once',
    ],
    [
      'the effect of a zombie',
      e => Object.assign(theEnd(e, 'c'), { effects: [12] }),
      'c: its effect is of another run',
    ],
    [
      'a state without a reason',
      e => Object.assign(theEnd(e, 'a'), { state: 'cancelled' }),
      'a: its state has no reason',
    ],
    [
      'a dependent that ran all the same',
      e => Object.assign(theEnd(e, 'h'), { state: 'succeeded' }),
      'h: its state has no reason',
    ],
    [
      'a group that did not end',
      e => Object.assign(e.groups[0] ?? {}, { endState: null }),
      'G: its group has not ended',
    ],
    [
      'a group that lost count',
      e => Object.assign(e.groups[0] ?? {}, { counted: 1 }),
      'G: its group has counted wrongly',
    ],
    [
      'a limit that was exceeded',
      e => Object.assign(e.capacities[0] ?? {}, { capacity: 2 }),
      'c: a limit was exceeded',
    ],
    [
      'a limit that was exceeded long after it was lowered',
      e => e.capacities.push({ task: 'plain', key: '', capacity: 2, at: micro(7.9) }),
      'g: a limit was exceeded',
    ],
    [
      'a workflow out of order',
      e => {
        Object.assign(theEnd(e, 'a'), { workflow: 1, workflowSeq: 2 })
      },
      'g: it stands before one that was there earlier',
    ],
  ])('finds %s', (_, doctor, finding) => {
    expect(findingsOf(doctor)).toContain(finding)
  })
})
