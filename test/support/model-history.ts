/** One history of the model test, from an empty deployment to a drained one. */
import fc from 'fast-check'
import type { Spread } from '../../src/redis/queue-index.ts'
import type { ScriptRunner } from '../../src/redis/scripts.ts'
import type { JobModel } from './job-model.ts'
import { outcomesOf, send } from './model-calls.ts'
import { commandsOf, withNumbers } from './model-commands.ts'
import { auditAll, compare, same } from './model-compare.ts'
import { endTransaction } from './model-jobs.ts'
import { obey, rescue, rest, restart, START } from './model-steps.ts'
import { ABLE, type Ground, type World } from './model-world.ts'

export interface HistoryOptions {
  isWithRedis: boolean
  /** Of fast-check: which commands of a shrunk history were run. */
  replayPath?: string | undefined
  /** Other scripts than the package's. */
  runner?: ScriptRunner | undefined
  /** A history has begun. */
  onHistory?: (history: Promise<void>) => void
}

const SPREADS: readonly Spread[] = [
  { width: 0, strategy: 'least-queue' },
  { width: 1, strategy: 'least-queue' },
]

/** Rounds in which nothing moves, although something is ready. */
const PATIENCE = 4

export function historyProperty(ground: () => Ground, options: HistoryOptions) {
  const commands = fc.commands(commandsOf(options.isWithRedis), {
    // Many: most faults in red.test.ts need jobs that ran, or wait, for a while.
    maxCommands: 100,
    size: 'max',
    ...(options.replayPath ? { replayPath: options.replayPath } : {}),
  })
  return fc.asyncProperty(fc.constantFrom(...SPREADS), commands, async (spread, steps) => {
    const history = runHistory(ground().begin(spread, options.runner), steps)
    options.onHistory?.(history)
    await history
  })
}

async function runHistory(
  begun: Promise<World>,
  steps: Iterable<fc.AsyncCommand<JobModel, World>>,
): Promise<void> {
  const world = await begun
  await fc.asyncModelRun(() => ({ model: world.model, real: world }), steps)
  try {
    await drainAll(world)
  } catch (error) {
    throw new Error(`at the end: ${withNumbers(world, (error as Error).message)}`, { cause: error })
  }
}

/** Everything that may run runs, and what is left afterwards is excused. */
async function drainAll(world: World): Promise<void> {
  const { model } = world
  await endTransaction(world, true)
  await rescue(world, 1000)
  await rest(world)
  await compare(world)
  await auditAll(world, 'at the end')
  await obey(world, { do: 'time comes' })
  await restart(world, 0, ABLE)
  await drain(world)
  for (const job of model.left())
    if (!model.waitsForHalted(job)) throw new Error(`job ${job.id} is ${job.state}, and nothing excuses it`)
  await expectQuiet(world)
  for (const workflow of [...model.halted] as ('v' | 'w')[]) await obey(world, { do: 'resume', workflow })
  await drain(world)
  if (model.left().length > 0) throw new Error(`${model.left().length} jobs have not ended`)
  await auditAll(world, 'drained')
}

/**
 * Runs all there is, successfully, until nothing moves any more. What Redis learns by beats and audits may take several; what was
 * claimed past it, one after another as slots allow, until somebody has taken it in vain.
 */
async function drain(world: World): Promise<void> {
  const { model } = world
  const seen = async () => {
    const inRedis = await heldInRedis(world)
    const isLeft = inRedis.length > 0 || [...model.jobs.values()].some(job => job.state === 'ready')
    return {
      isLeft,
      all: [...model.jobs.values()]
        .map(job => job.state + job.token)
        .concat(inRedis)
        .join(),
    }
  }
  let before = await seen()
  for (let still = 0; still === 0 || (still < PATIENCE && before.isLeft); ) {
    if (still > 0) await passTime(world)
    await rest(world)
    await world.redis?.relay.term.audit()
    for (const by of world.workers) {
      const all = model.running(by.id).map((_, pick) => ({ pick, kind: 'succeeded' as const }))
      await send(world, await by.begin(outcomesOf(world, by, all), 10))
    }
    const now = await seen()
    still = before.all === now.all ? still + 1 : 0
    before = now
  }
  await rest(world)
  await obey(world, { do: 'sweep' })
  await compare(world)
}

/** Ids in lanes, and ids that were taken: by a worker that is gone too, until the relay finds that they are overdue. */
async function heldInRedis({ redis }: World): Promise<string[]> {
  if (!redis) return []
  const keys = ['jobs', 'taken'].map(name => `${redis.index.root}:${redis.relay.generation}:${name}`)
  const ids = await Promise.all(keys.map(key => redis.client.hkeys(key)))
  return ids.flatMap(of => of.filter(id => id !== '').sort())
}

/** What was taken and not claimed is overdue by now: a relay that has followed another knows it only by that. */
export async function passTime({ redis }: World): Promise<void> {
  if (!redis?.hasFollowed) return
  const key = `${redis.index.root}:${redis.relay.generation}:taken`
  for (const [id, taken] of Object.entries(await redis.client.hgetall(key)))
    await redis.client.hset(key, id, taken.replace(/^(\d+) \d+ /, '$1 0 '))
}

/** The watchdog holds its peace on groups that wait for a stopped workflow. */
async function expectQuiet({ database, model }: World): Promise<void> {
  const watch = () =>
    database.rows<{ report: unknown }>(
      'select report from longshore.watch_groups($1, 1000, 100000, 3600000)',
      [START],
    )
  await watch()
  await database.rows("update longshore.groups set seen_at = now() - interval '1 hour'")
  same('the watchdog reports', (await watch())[0]?.report, null)
  for (const [id, group] of model.groups)
    if (group.end === undefined) {
      const [row] = await database.rows<{ excuse: string }>(
        'select longshore.why_group_is_idle($1) as excuse',
        [id],
      )
      same(`group ${id} is excused`, row?.excuse, 'halted')
    }
}
