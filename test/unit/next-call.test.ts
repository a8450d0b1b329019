import { describe, expect, it } from 'vitest'
import {
  type LoopState,
  type Memory,
  type Mode,
  modeOf,
  type NextCall,
  nextCall,
} from '../../src/worker/next-call.ts'
import { Permits } from '../../src/worker/permits.ts'

const NOW = 10_000

type Given = Partial<Omit<LoopState, 'permits' | 'memory'>> & {
  permits?: Partial<Pick<Permits, 'taken' | 'asked' | 'ended'>> & { max?: number }
  memory?: Partial<Memory>
}

/** An idle worker with 100 permits that was rung a moment ago; and what is different. */
function stateOf({ permits = {}, memory = {}, ...given }: Given = {}): LoopState {
  const { max = 100, ...counts } = permits
  return {
    isClosed: false,
    mayClaim: true,
    pausedUntil: 0,
    outcomes: 0,
    mostOutcomes: 1000,
    outcomesSince: NOW,
    hasBusyOutcomes: false,
    isAwaited: false,
    claims: 0,
    settles: 0,
    permits: Object.assign(new Permits(max), counts),
    claimedAt: NOW - 1,
    batch: 10,
    hasBacklog: false,
    isLimited: false,
    isFlow: false,
    lookAt: Infinity,
    looksForFree: true,
    pressure: { memory: 0.1, p99Ms: 0 },
    limits: { memoryThreshold: 0.8, claimBatchSize: 50 },
    memory: { mustLook: true, isSaturated: false, isShortOfRoom: false, most: 100, ...memory },
    ...given,
  }
}

const quiet = { mustLook: false }

/** As short as a table needs it: `5+10` sends 5 outcomes and asks for 10 jobs. */
function shown(next: NextCall): string {
  if (next.step === 'call') return `${next.outcomes}+${next.limit}`
  const until = next.until === Infinity ? '' : ` until ${next.until - NOW}`
  return `wait${until}${next.isSettled ? ', settled' : ''}${next.says ? `, ${next.says}` : ''}`
}

describe('the mode of a worker', () => {
  it.each<[Mode, Given]>([
    ['idle', {}],
    ['flowing', { isFlow: true }],
    ['backlog', { hasBacklog: true }],
    ['backlog', { hasBacklog: true, isFlow: true }],
    ['settling only', { mayClaim: false, hasBacklog: true, isFlow: true }],
    ['paused', { pausedUntil: NOW + 1, mayClaim: false }],
    ['idle', { pausedUntil: NOW }],
    ['closed', { isClosed: true, pausedUntil: NOW + 1 }],
  ])('is %s with %o', (mode, given) => {
    expect(modeOf(stateOf(given), NOW)).toBe(mode)
    expect(nextCall(stateOf(given), NOW).mode).toBe(mode)
  })
})

describe('what a worker sends next', () => {
  it.each<[string, Given, string]>([
    ['[W5] a claim, when it is to look', {}, '0+10'],
    ['nothing, when it was not told to look', { memory: quiet }, 'wait, settled, idle'],
    ['[W5] a claim, when the time to look again has come', { memory: quiet, lookAt: NOW }, '0+10'],
    ['nothing before that time', { memory: quiet, lookAt: NOW + 7 }, 'wait until 7, settled, idle'],
    ['[W6] a claim of what is free', { permits: { taken: 97 } }, '0+3'],
    ['[W3] nothing, when every permit is taken', { permits: { taken: 100 } }, 'wait, settled, full'],
    ['[W3] nothing, when the rest is asked for', { permits: { taken: 60, asked: 40 }, claims: 1 }, 'wait'],
    ['outcomes with a claim', { outcomes: 5 }, '5+10'],
    [
      'outcomes with a claim also when it was not told to look, where that costs nothing',
      { outcomes: 5, memory: quiet },
      '5+10',
    ],
    ['outcomes alone, where it costs', { outcomes: 5, memory: quiet, looksForFree: false }, '5+0'],
    ['outcomes alone, when no permit is free', { outcomes: 5, permits: { taken: 100 } }, '5+0'],
    ['no more outcomes than may travel at once', { outcomes: 5, mostOutcomes: 3 }, '3+10'],
    ['a second claim beside the first', { claims: 1, permits: { asked: 10 } }, '0+10'],
    ['no third', { claims: 2, permits: { asked: 20 }, outcomes: 5 }, 'wait'],
    ['a claim beside calls that only settle', { settles: 2 }, '0+10'],
    ['no third call that only settles', { settles: 2, outcomes: 5, permits: { taken: 100 } }, 'wait'],
    [
      'nothing while rows are locked, and says that it idles',
      { memory: quiet, hasBusyOutcomes: true },
      'wait, idle',
    ],
  ])('idle: %s', (_, given, sent) => {
    expect(shown(nextCall(stateOf(given), NOW))).toBe(sent)
  })

  it.each<[string, Given, string]>([
    ['one claim at once', { claims: 1, permits: { asked: 10 } }, 'wait'],
    [
      'no outcomes beside it: they travel with the next',
      { claims: 1, permits: { asked: 10 }, outcomes: 5 },
      'wait',
    ],
    ['a claim beside a settle', { settles: 1 }, '0+10'],
    ['outcomes wait up to 3 ms for a claim', { outcomes: 5, permits: { taken: 100 } }, 'wait until 3'],
    ['and no longer', { outcomes: 5, permits: { taken: 100 }, outcomesSince: NOW - 3 }, '5+0'],
    [
      'not where one waits for the last of them',
      { outcomes: 5, permits: { taken: 100 }, isAwaited: true },
      '5+0',
    ],
    ['not beside two settles', { outcomes: 5, settles: 2, permits: { taken: 100 } }, 'wait'],
    [
      'outcomes wait for a claim that is wanted soon, where looking costs',
      { outcomes: 5, memory: quiet, looksForFree: false },
      'wait until 3',
    ],
  ])('flowing: %s', (_, given, sent) => {
    expect(shown(nextCall(stateOf({ isFlow: true, ...given }), NOW))).toBe(sent)
  })

  it.each<[string, Given, string]>([
    ['it claims without being told', { memory: quiet }, '0+10'],
    ['two claims at once', { claims: 1, permits: { asked: 10 }, isFlow: true }, '0+10'],
    ['[W4] twice as many as have ended', { permits: { max: 1000, ended: 100 } }, '0+200'],
    ['[W8] nothing below 10 % of the permits', { permits: { taken: 91 } }, 'wait until 99, settled, full'],
    ['[W8] the rest at 10 %', { permits: { taken: 90 } }, '0+10'],
    [
      '[W8] nothing below 20 % once it has stopped',
      { permits: { taken: 81 }, memory: { isSaturated: true } },
      'wait until 99, settled, full',
    ],
    ['[W8] more from 20 % on', { permits: { taken: 80 }, memory: { isSaturated: true } }, '0+10'],
    [
      '[W8] what is free, when it has waited for long',
      { permits: { taken: 95 }, claimedAt: NOW - 100 },
      '0+5',
    ],
    [
      'no second time at once, when that is asked for',
      {
        permits: { taken: 95, asked: 5 },
        claims: 1,
        claimedAt: NOW - 100,
      },
      'wait',
    ],
  ])('backlog: %s', (_, given, sent) => {
    expect(shown(nextCall(stateOf({ hasBacklog: true, ...given }), NOW))).toBe(sent)
  })

  it.each<[string, Given, string]>([
    ['outcomes at once, also where jobs flow', { outcomes: 5, isFlow: true }, '5+0'],
    ['outcomes beside a claim that was sent before', { outcomes: 5, claims: 1, isFlow: true }, '5+0'],
    ['no third call', { outcomes: 5, claims: 2 }, 'wait'],
    ['[W16] no claim, and does not say that it idles', { hasBacklog: true }, 'wait, settled'],
  ])('settling only: %s', (_, given, sent) => {
    expect(shown(nextCall(stateOf({ mayClaim: false, ...given }), NOW))).toBe(sent)
  })

  it.each<[string, Given, string]>([
    ['nothing before the pause is over', { outcomes: 5, pausedUntil: NOW + 50 }, 'wait until 50'],
    ['says that everything is settled', { pausedUntil: NOW + 50 }, 'wait until 50, settled'],
  ])('paused: %s', (_, given, sent) => {
    expect(shown(nextCall(stateOf(given), NOW))).toBe(sent)
  })

  it('sends nothing once it is closed', () => {
    expect(shown(nextCall(stateOf({ isClosed: true, outcomes: 5 }), NOW))).toBe('wait')
  })
})

describe('a worker that is short of memory', () => {
  const short = {
    pressure: { memory: 0.95, p99Ms: 0 },
    permits: { taken: 50 },
    memory: { mustLook: true, most: 80 },
  }

  it.each<[string, Given, string]>([
    ['[W9] waits for a run to end', {}, 'wait until 999, settled, full'],
    ['[W9] takes half as many as have ended', { permits: { taken: 40, ended: 10 } }, '0+5'],
    ['[W6] takes one when it has waited for long', { claimedAt: NOW - 1000 }, '0+1'],
  ])('%s', (_, given, sent) => {
    expect(shown(nextCall(stateOf({ ...short, ...given }), NOW))).toBe(sent)
  })

  it('[W13] forgets how many it had before', () => {
    expect(nextCall(stateOf(short), NOW).memory.most).toBe(50)
  })

  it('[W9] halves claims above the threshold and keeps to what its memory bore', () => {
    const over = stateOf({
      pressure: { memory: 0.85, p99Ms: 0 },
      permits: { max: 1000, taken: 200 },
      memory: { mustLook: true, most: 200 },
    })
    // 200 jobs took 85 %: 188 take 80 %, and 200 run.
    expect(shown(nextCall(over, NOW))).toBe('0+1')
  })
})

describe('what a worker remembers', () => {
  it('[W8] looks again once it has room: no bell has told it of jobs meanwhile', () => {
    const before = nextCall(stateOf({ hasBacklog: true, permits: { taken: 95 }, memory: quiet }), NOW)
    expect(before.memory).toMatchObject({ isSaturated: true, isShortOfRoom: true, mustLook: false })
    const after = nextCall(stateOf({ permits: { taken: 50 }, memory: before.memory }), NOW)
    expect(after.memory).toMatchObject({ isSaturated: false, isShortOfRoom: false, mustLook: true })
    expect(shown(after)).toBe('0+10')
  })

  it('changes nothing of what it was given', () => {
    const state = stateOf({ hasBacklog: true, permits: { taken: 95 }, outcomes: 5 })
    const before = structuredClone({ ...state, permits: { ...state.permits } })
    nextCall(state, NOW)
    expect({ ...state, permits: { ...state.permits } }).toEqual(before)
  })
})
