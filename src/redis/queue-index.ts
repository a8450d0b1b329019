/**
 * Owns the typed calls of the scripts: one queue's dispatch index. Expected outcomes are codes, not errors. Answers are checked:
 * what Redis holds is input.
 */

import type { JobId } from '../job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import { quoted } from '../job/shown.ts'
import { rootKey } from './names.ts'
import { broken, type IdCheck, toCode, toDigits, toIds, toInteger, toList, toNumber } from './replies.ts'
import { runScript, type ScriptRunner, scriptNamed } from './scripts.ts'

/** A step of the relay: refused to whoever does not lead, or does not know what Redis holds. */
export interface Step {
  epoch: string
  generation: string
  seq: number
}

export type StepCode = 'OK' | 'AGAIN' | 'FENCED' | 'LOST'

/** To how many workers a job is copied (0: all that may run it), and to which. */
export interface Spread {
  width: number
  strategy: 'least-queue' | 'round-robin' | 'random'
}

/** A place in the order. As a bound it is the first that is not there. */
export interface Place {
  score: string
  id: string
}

/** Before every job. */
export const START: Place = { score: '-1', id: '' }

/** Brings up to date what is known; `check`: also what seems to be there; `audit`: also what was taken and never claimed. */
export type How = 'relay' | 'check' | 'audit'

/** Taken, and not handed over by Postgres; without its true place where the claim's answer is not known. */
export type Refused = Pick<ReadyJob, 'id'> &
  ((Omit<ReadyJob, 'id'> & { answer: 'busy' | 'full' | 'moved' }) | { answer: 'unclear' })

export interface Taken {
  code: 'OK' | 'LOST' | 'UNKNOWN'
  ids: JobId[]
  lanes: number[]
  /** Lanes under limits among them, and how many of `ending` were used in each. */
  limited: Map<number, number>
  /** The lanes are left to Postgres: it is to be asked itself. */
  goesStraight: boolean
}

export interface Beat {
  code: 'OK' | 'FENCED' | 'LOST'
  overdue: JobId[]
  fullLimits: { limit: number; turn: string }[]
  lowLanes: number[]
  queued: number
  taken: number
  bells: number
}

export interface LanePage {
  code: 'OK' | 'LOST' | 'UNKNOWN'
  jobs: { id: JobId; score: string }[]
  bound: Place | null
  kind: number
  limit: number | null
  keyLimit: number | null
  /** What is written down twice and does not agree; else nothing. */
  problem: string
}

export interface QueueIndex {
  readonly root: string
  place(
    step: Step,
    how: How,
    jobs: readonly ReadyJob[],
  ): Promise<{ code: StepCode; bells: number; placed: number; bounds: Map<number, Place> }>
  /** `beyond`: how many stay in Postgres, where their lane goes on. */
  hint(
    jobs: readonly ReadyJob[],
  ): Promise<{ code: 'OK' | 'LOST'; bells: number; placed: number; beyond: number }>
  remove(step: Step, ids: readonly string[]): Promise<{ code: StepCode; removed: number }>
  take(options: {
    generation: string
    worker: number
    limit: number
    running: number
    /** How many slots of which lanes are free again. */
    freed: ReadonlyMap<number, number>
    /** Runs of lanes under limits that end with the claim that follows. Default: none. */
    ending?: ReadonlyMap<number, number>
    /** Taken earlier, and claimed or found gone. */
    done: readonly string[]
    /** It can claim from Postgres itself; or it did, and got less than it asked for. Default: it cannot. */
    straight?: 'may' | 'short'
  }): Promise<Taken>
  /** Of a job that a bell told of, while it is claimed. `hasMore`: there may be more for the worker; else it is idle. */
  takeOffered(options: {
    generation: string
    worker: number
    limit: number
    running: number
    job: { id: string; leaseToken: string }
    done: readonly string[]
  }): Promise<{ code: Taken['code']; hasMore: boolean }>
  putBack(generation: string, worker: number, jobs: readonly Refused[]): Promise<'OK' | 'LOST'>
  register(
    generation: string,
    worker: number,
    facts: { tasks: readonly string[]; tags: readonly string[]; constraintTags: readonly string[] },
  ): Promise<'OK' | 'LOST'>
  /** Answers what the worker had taken and not claimed. */
  unregister(worker: number): Promise<JobId[]>
  refill(
    step: Step,
    facts: LaneFacts,
    from: Place,
    bound: Place | null,
    jobs: readonly ReadyJob[],
  ): Promise<{ code: StepCode | 'MOVED' | 'SPILLED'; bound: Place | null }>
  setSlots(step: Step, limit: number, free: string, turn: string | null): Promise<StepCode | 'CHANGED'>
  beginGeneration(
    epoch: string,
    generation: string,
    spread: Spread,
    sizes: { depth: number; window: number },
  ): Promise<{ code: 'OK'; before: string } | { code: 'FENCED'; epoch: string }>
  adopt(
    step: Step,
    sizes: { depth: number; window: number },
  ): Promise<{ code: 'OK' | 'LOST' | 'FENCED'; seq: number; epoch: string }>
  beat(step: Step, queue: string, overdueMs: number): Promise<Beat>
  setMode(step: Step, spread: Spread): Promise<StepCode>
  /** Postgres does not have these lanes any more. */
  forgetLanes(step: Step, lanes: readonly number[]): Promise<StepCode>
  /** Nor these limits of keys. Lanes under them that have jobs are wanted again. */
  forgetLimits(step: Step, limits: readonly number[]): Promise<StepCode>
  /** Nothing of it is needed any more; what it leaves is to be dropped. */
  endGeneration(step: Step): Promise<StepCode>
  lanePage(generation: string, lane: number, from: Place, most: number): Promise<LanePage>
  /** Rejects when steps cannot be run. */
  probe(): Promise<void>
  /** Whether something is left. */
  dropGeneration(generation: string, most: number): Promise<boolean>
}

/** Of what is kept as JSON: a script could not read it again, now and ever after. */
function checkTexts(script: string, texts: readonly string[]): void {
  const isText = (text: unknown) => typeof text === 'string' && text !== '' && text.isWellFormed()
  if (Array.isArray(texts) && texts.every(isText)) return
  throw new Error(`lua/${script}.lua: facts are lists of texts; got ${quoted(texts)}`)
}

const STEP_CODES = ['OK', 'AGAIN', 'FENCED', 'LOST'] as const

/** `isId`: what it takes for the id of a job. */
export function queueIndex(
  runner: ScriptRunner,
  deployment: string,
  queue: string,
  isId?: IdCheck,
): QueueIndex {
  const root = rootKey(deployment, queue)
  const { toId, toBound } = toIds(isId)
  const run = async (name: string, args: Record<string, string | number>, items?: string[]) => {
    const answer: unknown = await runScript(runner, scriptNamed(name), root, args, items)
    return Array.isArray(answer) ? (answer as unknown[]) : broken('an answer', answer)
  }
  const stepArgs = ({ epoch, generation, seq }: Step) => ({ epoch, generation, seq })
  const jobItems = (jobs: readonly ReadyJob[]) =>
    jobs.flatMap(job => [job.id, String(job.lane), job.score, job.leaseToken])

  return {
    root,
    async place(step, how, jobs) {
      const [code, bells, placed, lanes, scores, ids] = await run(
        'place',
        { ...stepArgs(step), how },
        jobItems(jobs),
      )
      const bounded = toList(lanes ?? [], toNumber)
      const [of, at] = [toList(scores ?? [], String), toList(ids ?? [], String)]
      const bounds = bounded.map(
        (lane, n) => [lane, toBound(of[n], at[n]) ?? broken('a bound', of[n])] as const,
      )
      return {
        code: toCode(code, ...STEP_CODES),
        bells: toInteger(bells),
        placed: toInteger(placed),
        bounds: new Map(bounds),
      }
    },
    async hint(jobs) {
      const [code, bells, placed, beyond] = await run('hint', {}, jobItems(jobs))
      return {
        code: toCode(code, 'OK', 'LOST'),
        bells: toInteger(bells),
        placed: toInteger(placed),
        beyond: toInteger(beyond),
      }
    },
    async remove(step, ids) {
      const [code, removed] = await run('remove', stepArgs(step), [...ids])
      return { code: toCode(code, ...STEP_CODES), removed: toInteger(removed) }
    },
    async take({ generation, worker, limit, running, freed, ending, done, straight: asked = '' }) {
      const told = (map: ReadonlyMap<number, number> | undefined) => [...(map ?? [])].flat().join(',')
      const [code, ids, lanes, limited, used, straight] = await run(
        'take',
        { generation, worker, limit, running, freed: told(freed), straight: asked, ending: told(ending) },
        [...done],
      )
      const taken = toList(ids ?? [], toId)
      const under = toList(limited ?? [], toNumber)
      const counts = toList(used ?? [], toNumber, under.length)
      return {
        code: toCode(code, 'OK', 'LOST', 'UNKNOWN'),
        ids: taken,
        lanes: toList(lanes ?? [], toNumber, taken.length),
        limited: new Map(under.map((lane, n) => [lane, counts[n] as number])),
        goesStraight: straight === 1,
      }
    },
    async takeOffered({ generation, worker, limit, running, job, done }) {
      const [code, hasMore] = await run(
        'take_offered',
        { generation, worker, limit, running, id: job.id, token: job.leaseToken },
        [...done],
      )
      return { code: toCode(code, 'OK', 'LOST', 'UNKNOWN'), hasMore: hasMore === 1 }
    },
    async putBack(generation, worker, jobs) {
      const items = jobs.flatMap(job =>
        job.answer === 'unclear'
          ? [job.id, job.answer, '', '', '']
          : [job.id, job.answer, String(job.lane), job.score, job.leaseToken],
      )
      const [code] = await run('put_back', { generation, worker }, items)
      return toCode(code, 'OK', 'LOST')
    },
    async register(generation, worker, { tasks, tags, constraintTags }) {
      for (const texts of [tasks, tags, constraintTags]) checkTexts('register', texts)
      const facts = JSON.stringify({ tasks, tags, constraintTags })
      const [code] = await run('register', { generation, worker, facts })
      return toCode(code, 'OK', 'LOST')
    },
    async unregister(worker) {
      const [, taken] = await run('unregister', { worker })
      return toList(taken, toId)
    },
    async refill(step, lane, from, bound, jobs) {
      const { task, tag, constraintTag, isPlain, hasLimits } = lane
      checkTexts('refill', [task, tag, constraintTag])
      const [code, , boundScore, boundId] = await run(
        'refill',
        {
          ...stepArgs(step),
          lane: lane.lane,
          kind: lane.kind,
          facts: JSON.stringify({ task, tag, constraintTag, isPlain, hasLimits }),
          limit: lane.limit ?? '',
          free: lane.free ?? '',
          keyLimit: lane.keyLimit ?? '',
          keyFree: lane.keyFree ?? '',
          fromScore: from.score,
          fromId: from.id,
          boundScore: bound?.score ?? '',
          boundId: bound?.id ?? '',
        },
        jobs.flatMap(job => [job.id, job.score, job.leaseToken]),
      )
      return { code: toCode(code, ...STEP_CODES, 'MOVED', 'SPILLED'), bound: toBound(boundScore, boundId) }
    },
    async setSlots(step, limit, free, turn) {
      const [code] = await run('set_slots', { ...stepArgs(step), limit, free, turn: turn ?? '' })
      return toCode(code, ...STEP_CODES, 'CHANGED')
    },
    async beginGeneration(epoch, generation, { width, strategy }, { depth, window }) {
      const [code, other] = await run('begin_generation', {
        epoch,
        generation,
        width,
        strategy,
        depth,
        window,
      })
      return toCode(code, 'OK', 'FENCED') === 'OK'
        ? { code: 'OK', before: String(other) }
        : { code: 'FENCED', epoch: toDigits(other) }
    },
    async adopt(step, { depth, window }) {
      const [code, seq, epoch] = await run('adopt', { ...stepArgs(step), depth, window })
      return { code: toCode(code, 'OK', 'LOST', 'FENCED'), seq: toInteger(seq), epoch: toDigits(epoch) }
    },
    async beat(step, name, overdueMs) {
      const [code, overdue, limits, turns, low, queued, taken, bells] = await run('beat', {
        ...stepArgs(step),
        queue: name,
        overdueMs,
      })
      const full = toList(limits ?? [], toNumber)
      const turnsOf = toList(turns ?? [], toDigits, full.length)
      return {
        code: toCode(code, 'OK', 'FENCED', 'LOST'),
        overdue: toList(overdue ?? [], toId),
        fullLimits: full.map((limit, n) => ({ limit, turn: turnsOf[n] as string })),
        lowLanes: toList(low ?? [], toNumber),
        queued: toInteger(queued ?? 0),
        taken: toInteger(taken ?? 0),
        bells: toInteger(bells ?? 0),
      }
    },
    async setMode(step, { width, strategy }) {
      const [code] = await run('set_mode', { ...stepArgs(step), width, strategy })
      return toCode(code, ...STEP_CODES)
    },
    async forgetLanes(step, lanes) {
      const [code] = await run('forget_lanes', stepArgs(step), lanes.map(String))
      return toCode(code, ...STEP_CODES)
    },
    async forgetLimits(step, limits) {
      const [code] = await run('forget_limits', stepArgs(step), limits.map(String))
      return toCode(code, ...STEP_CODES)
    },
    async endGeneration(step) {
      const [code] = await run('end_generation', stepArgs(step))
      return toCode(code, ...STEP_CODES)
    },
    async probe() {
      await run('probe', {})
    },
    async lanePage(generation, lane, from, most) {
      const [code, ids, scores, boundScore, boundId, kind, limit, keyLimit, problem] = await run(
        'lane_page',
        {
          generation,
          lane,
          fromScore: from.score,
          fromId: from.id,
          most,
        },
      )
      const page = toList(ids ?? [], toId)
      const places = toList(scores ?? [], toDigits, page.length)
      return {
        code: toCode(code, 'OK', 'LOST', 'UNKNOWN'),
        jobs: page.map((id, n) => ({ id, score: places[n] as string })),
        bound: toBound(boundScore ?? '', boundId),
        kind: toNumber(kind ?? 0),
        limit: limit ? toNumber(limit) : null,
        keyLimit: keyLimit ? toNumber(keyLimit) : null,
        problem: String(problem ?? '').slice(0, 100),
      }
    },
    async dropGeneration(generation, most) {
      const [, left] = await run('drop_generation', { generation, most })
      return left === 1
    },
  }
}
