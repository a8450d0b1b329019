/** How workers of the model test talk to Postgres, and whether its answers are what the model says. */
import type { JobId } from '../../src/job/job-id.ts'
import type { Exchange, Outcome } from '../../src/postgres/settle-and-claim.ts'
import type { Call, HandWorker } from './hand-worker.ts'
import { type ModelOutcome, mayRun, type OutcomeKind } from './job-model.ts'
import { readJobRows, same } from './model-compare.ts'
import { HOUR_MS } from './model-jobs.ts'
import type { World } from './model-world.ts'

export interface Run {
  pick: number
  kind: OutcomeKind
  /** One that the worker had before, as if it had been held up since; rather of a job that it runs again. */
  isOld?: boolean
}

export function outcomesOf({ model }: World, by: HandWorker, runs: readonly Run[]): Outcome[] {
  const running = model.running(by.id)
  const all = model.runs.filter(run => run.worker === by.id)
  const before = all.filter(run => running.some(({ id, token }) => run.id === id && run.token !== token))
  const chosen = new Map<string, Outcome>()
  for (const { pick, kind, isOld } of runs) {
    const among = isOld ? (before.length > 0 ? before : all) : running
    const run = among[pick % Math.max(among.length, 1)]
    if (run) chosen.set(run.id, toOutcome(run.id as JobId, run.token, kind))
  }
  return [...chosen.values()]
}

function toOutcome(id: JobId, leaseToken: string, kind: OutcomeKind): Outcome {
  const error = { code: 'ERROR', message: 'no' }
  switch (kind) {
    case 'succeeded':
      return { id, leaseToken, kind, result: null }
    case 'failed':
      return { id, leaseToken, kind, error }
    case 'released':
      return { id, leaseToken, kind }
    default:
      return { id, leaseToken, kind: 'retry', error, delayMs: kind === 'retry' ? 0 : HOUR_MS }
  }
}

/** In the order in which they are settled. */
function toModel(outcomes: readonly Outcome[]): ModelOutcome[] {
  const isLater = (outcome: Outcome) => (outcome.kind === 'succeeded' ? 0 : 1)
  return [...outcomes]
    .sort((a, b) => isLater(a) - isLater(b) || (a.id < b.id ? -1 : 1))
    .map(outcome => ({
      id: outcome.id,
      token: outcome.leaseToken,
      kind: outcome.kind === 'retry' && outcome.delayMs > 0 ? 'retry later' : outcome.kind,
    }))
}

/** A call goes to Postgres, and its answer back, unless one of them is lost. */
export async function send(
  world: World,
  call: Call,
  how: 'answered' | 'answer lost' | 'never sent' = 'answered',
): Promise<void> {
  const { by } = call
  if (how === 'never sent') return by.giveUp(call)
  const answer = await by.send(call)
  await checkAnswer(world, call, answer)
  if (how === 'answer lost') return by.giveUp(call)
  await by.accept(call, answer)
  world.redis?.hints.push(...answer.ready)
  if (answer.groups.length === 0) return
  await world.database.rows('select longshore.close_groups($1)', [answer.groups])
  for (const id of answer.groups) world.model.close(id)
}

async function checkAnswer(world: World, call: Call, answer: Exchange): Promise<void> {
  const { model } = world
  const { by, limit, named } = call
  const wasReady = new Set(model.inOrder().map(job => job.id))
  const isAtEnd = () => new Set([...model.groups.keys()].filter(id => model.left(id).length === 0))
  const wasAtEnd = isAtEnd()
  same('settle loses', [...answer.lost].sort(), model.settle(by.id, toModel(call.outcomes)).sort())
  same('settle finds busy', [...answer.busy], [])
  for (const group of isAtEnd())
    if (!wasAtEnd.has(group) && !answer.groups.includes(group))
      throw new Error(`nobody is told that group ${group} is at its end`)
  await readJobRows(world)

  const isAsking = named !== undefined || limit > 0
  const claimed = answer.claimed.map(job => job.id as string)
  const could = (isAsking ? model.claimable(by.id, named ? Infinity : limit, named) : []).map(job => job.id)
  const isCutShort = !named && (answer.wait === 'more' || answer.wait === 'busy')
  same(`worker ${by.id} claims`, claimed, isCutShort ? model.claimedEarly(by.id, claimed) : could)
  same('it is dead', answer.wait === 'dead', isAsking && !model.workers.has(by.id))
  model.claim(
    answer.claimed.map(job => ({ id: job.id, token: job.leaseToken })),
    by.id,
  )

  const refused = named?.ids.flatMap(id => {
    const job = model.get(id)
    if (job.state !== 'ready' || answer.wait === 'dead') return []
    const worker = model.workers.get(by.id)
    if (!named.lanes.includes(job.lane as number) || !worker || !mayRun(worker, job)) return [`${id} moved`]
    return [`${id} full`]
  })
  const said = answer.refused.map(({ id, answer: why }) => `${id} ${why}`)
  same('refused', said.sort(), (refused ?? []).sort())
  const isReady = model.inOrder().map(job => job.id)
  same(
    'what it made ready',
    answer.ready.map(job => job.id as string).sort(),
    isReady.filter(id => !wasReady.has(id)).sort(),
  )
}

/**
 * At rest a take answers with the best that there is; where jobs are copied to one worker only, rather with its own, but not with fewer
 * than there are. Of jobs under limits Redis may believe fewer slots free than are.
 */
export function checkTake({ model, redis }: World, { by, limit, named }: Call): void {
  const worker = model.workers.get(by.id)
  const may = model.inOrder().filter(job => worker && mayRun(worker, job))
  const known = may.map(job => job.id)
  // What was claimed past Redis, or hinted too late, is taken in vain.
  const ids: readonly string[] = (named?.ids ?? []).filter(id => model.get(id).state === 'ready')
  const isShort = (named?.ids.length ?? 0) < limit
  const isInOrder = redis?.spread.width === 0
  if (isInOrder)
    same(
      'takes in order',
      ids,
      known.filter(id => ids.includes(id)),
    )
  else if (!isShort) return
  const last = isShort ? may.length : known.indexOf(ids.at(-1) ?? '')
  const passed = may.slice(0, Math.max(last, 0)).filter(job => job.task === 'free' && !ids.includes(job.id))
  same(
    'passes by',
    passed.map(job => job.id),
    [],
  )
}
