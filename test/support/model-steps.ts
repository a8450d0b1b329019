/** Does a command of the model test to the stores, step by step, and to the model. Throws where an answer is not what the model says. */
import { LongshoreError } from '../../src/index.ts'
import { constraintTag, constraintTags } from '../../src/job/constraints.ts'
import type { ChangeOptions } from '../../src/job/enqueue-options.ts'
import type { JobId } from '../../src/job/job-id.ts'
import { registerTasks } from '../../src/postgres/register-tasks.ts'
import { setProperties, unregisterWorker } from '../../src/postgres/register-worker.ts'
import { asAsked, forgetOn } from './forgetting.ts'
import type { HandWorker } from './hand-worker.ts'
import { isEnded, type JobModel } from './job-model.ts'
import { checkTake, outcomesOf, type Run, send } from './model-calls.ts'
import { auditAll, PAST, same } from './model-compare.ts'
import { draft, endTransaction, enqueue, GPU, HOUR_MS, type JobPlan, taskOf } from './model-jobs.ts'
import { bear, type Facts, hear, tightTask, type World } from './model-world.ts'

/** `isRelayed`: then the relay takes a turn. */
export type Command = Deed & { isRelayed?: boolean }
/** Numbers of jobs, groups and calls: which of those that there are, counted around. */
type Deed =
  | { do: 'enqueue'; job: JobPlan; count: number; how: 'alone' | 'committed' | 'rolled back' | 'left open' }
  | { do: 'enqueue again'; job: number }
  | { do: 'end transaction'; commits: boolean }
  | { do: 'submit'; jobs: JobPlan[] }
  | { do: 'add'; group: number; jobs: JobPlan[] }
  /**
   * A worker, or the last one that was taken for dead, settles runs and asks for jobs. `isDirect`: it has not heard the relay for a
   * while, and asks Postgres alone; `isLate`: it is held up before it can.
   */
  | { do: 'call'; worker: number; limit: number; runs: Run[]; isDirect: boolean; isLate: boolean }
  | { do: 'send'; call: number; how: 'answered' | 'answer lost' | 'never sent' }
  | { do: 'tell'; worker: number }
  | { do: 'cancel job'; job: number }
  | { do: 'cancel group'; group: number }
  | { do: 'change'; job: number; to: 'priority' | 'later' | 'now' | 'gpu' | 'no gpu' }
  | { do: 'time comes' }
  | { do: 'resume'; workflow: 'v' | 'w' }
  | { do: 'sweep' }
  | { do: 'worker dies'; worker: number; facts: Facts; rescued: number }
  | { do: 'rescue' }
  | { do: 'worker restarts'; worker: number; facts: Facts }
  | { do: 'properties'; worker: number; hasGpu: boolean }
  | { do: 'limits'; all: number | undefined; perKey: number | undefined }
  | { do: 'renew' }
  /** The leader goes round, days pass, and it goes round again. `isCut`: it is still in the first round then. */
  | { do: 'forget lanes'; isCut: boolean }
  /** Limits that are not used are forgotten, however short that is. */
  | { do: 'forget limits' }
  | { do: 'rest'; worker: number; limit: number }
  // Only where there is Redis.
  | { do: 'relay'; turns: number; gap: Command | null }
  | { do: 'beat'; hears: number[] }
  | { do: 'relay audits' }
  | { do: 'relay follows'; former: 'stops' | 'dies' | 'goes on' }
  | { do: 'former relay' }
  | { do: 'flush' }
  | { do: 'hint' }
  /** A bell tells a worker of a job, perhaps long ago. */
  | { do: 'offer'; worker: number; job: number; limit: number; isLate: boolean }

export const START = '00000000-0000-0000-0000-000000000000'

export async function obey(world: World, given: Command): Promise<void> {
  await act(world, given)
  if (given.isRelayed) await world.redis?.relay.turn()
}

async function act(world: World, given: Command): Promise<void> {
  const { model, producer, pool, database } = world
  const groups = [...model.groups.keys()]
  const groupAt = (at: number) => groups[at % groups.length] as string
  const jobs = [...model.jobs.values()]
  // Rather one that has not ended: after a while most have.
  const left = model.left()
  const jobAt = (at: number) => {
    const among = at % 5 === 0 || left.length === 0 ? jobs : left
    return among[at % among.length] as (typeof jobs)[number]
  }
  switch (given.do) {
    case 'enqueue':
      return enqueue(world, given.job, given.count, given.how)
    case 'enqueue again': {
      const { id, task } = jobAt(given.job)
      await producer.enqueue(taskOf(task), 0, { id })
      return
    }
    case 'end transaction':
      return endTransaction(world, given.commits)
    case 'submit': {
      const group = producer.group()
      model.groups.set(group.id, { isCancelled: false })
      const made = draft(world, group, given.jobs)
      await group.submit()
      return model.insert(made)
    }
    case 'add': {
      const id = groupAt(given.group)
      const group = producer.addToGroup(id)
      const made = draft(world, group, given.jobs)
      const { end, isCancelled } = model.groups.get(id) ?? { isCancelled: false }
      const isRefused = await group.submit().then(
        () => false,
        error => {
          if (error instanceof LongshoreError) return true
          throw error
        },
      )
      same('jobs are refused', isRefused, end !== undefined || isCancelled)
      if (!isRefused) model.insert(made)
      return
    }
    case 'call': {
      const by = world.workers[given.worker] ?? world.dead.at(-1) ?? (world.workers[0] as HandWorker)
      const { limit, isDirect } = given
      const begun = await by.begin(outcomesOf(world, by, given.runs), isDirect ? 0 : limit)
      const call = isDirect ? { ...begun, limit } : begun
      if (given.isLate) world.calls.push(call)
      else await send(world, call)
      return
    }
    case 'send': {
      const [call] = world.calls.splice(given.call % Math.max(world.calls.length, 1), 1)
      if (call) await send(world, call, given.how)
      return
    }
    case 'tell':
      return world.workers[given.worker]?.tell()
    case 'cancel job': {
      const { id } = jobAt(given.job)
      return same('cancel answers', await producer.cancel(id), model.cancelJob(id))
    }
    case 'cancel group': {
      const id = groupAt(given.group)
      return same('cancelGroup answers', await producer.cancelGroup(id), model.cancelGroup(id))
    }
    case 'change': {
      const { id } = jobAt(given.job)
      const { told, modelled } = CHANGES[given.to]()
      return same('change answers', await producer.change(id, told), model.change(id, modelled))
    }
    case 'time comes':
      await database.rows(
        `update longshore.jobs set score = ((score >> 42) << 42) | (n.ms - 1)
         from (select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms) n
         where (score & 4398046511103) > n.ms`,
      )
      await database.rows('select longshore.promote_due(1000)')
      return model.promote()
    case 'resume':
      return same(
        'resumeWorkflow answers',
        await producer.resumeWorkflow(given.workflow),
        model.resume(given.workflow) ? 'resumed' : 'not_halted',
      )
    case 'sweep':
      await database.rows('select longshore.sweep_groups($1, 1000)', [START])
      for (const id of groups) model.close(id)
      return
    case 'worker dies': {
      const by = world.workers[given.worker] as HandWorker
      const { id } = by
      await database.rows(
        "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
        [id],
      )
      model.workers.delete(id)
      world.dead.push(by)
      await rescue(world, given.rescued)
      world.workers[given.worker] = await bear(world, given.facts)
      return hear(world, [given.worker])
    }
    case 'rescue':
      return rescue(world, 1000)
    case 'worker restarts':
      return restart(world, given.worker, given.facts)
    case 'properties': {
      const by = world.workers[given.worker] as HandWorker
      const properties: Record<string, string> = given.hasGpu ? { gpu: 'a100' } : {}
      by.facts = { ...by.facts, constraintTags: constraintTags(properties) }
      await setProperties(pool, 'longshore', by.key, {
        properties,
        constraintTags: [...by.facts.constraintTags],
      })
      model.workers.set(by.id, by.facts)
      if (by.registered !== undefined) await by.register(by.registered)
      return
    }
    case 'limits': {
      const { all, perKey } = given
      await registerTasks(pool, 'longshore', [tightTask(all, perKey)])
      model.limits.set('tight', { ...(all ? { all } : {}), ...(perKey ? { perKey } : {}) })
      return
    }
    case 'renew':
      await pool.query('select longshore.renew_slot_groups(array(select id from longshore.limits))')
      return
    case 'forget lanes':
      return forget(world, given.isCut)
    case 'forget limits':
      await database.rows(
        'update longshore.limit_looks set done_to = 0, idle_since = pg_snapshot_xmax(pg_current_snapshot())',
      )
      await database.rows('select longshore.forget_limits(0)')
      await database.rows('select longshore.forget_heads(0)')
      return
    case 'rest': {
      await rest(world)
      await auditAll(world, 'at rest')
      const by = world.workers[given.worker] as HandWorker
      const call = await by.begin([], given.limit)
      if (call.named) checkTake(world, call)
      return send(world, call)
    }
    default:
      return obeyInRedis(world, given)
  }
}

async function obeyInRedis(world: World, given: Command): Promise<void> {
  const { redis } = world
  if (!redis) throw new Error('there is no Redis here')
  switch (given.do) {
    case 'relay': {
      const { gap } = given
      const { relay } = redis
      for (let turn = 1; turn <= given.turns; turn++)
        await relay.turn(gap && turn === 1 ? () => obey(world, gap) : undefined)
      return
    }
    case 'beat':
      await redis.relay.beat()
      return hear(world, given.hears)
    case 'relay audits':
      await redis.relay.term.audit()
      return
    case 'relay follows': {
      const former = redis.relay
      if (given.former === 'stops') await former.term.stop()
      if (given.former === 'goes on') redis.former.push(former)
      redis.relay = await redis.lead()
      redis.hasFollowed = true
      return
    }
    case 'former relay': {
      const former = redis.former.shift()
      await former?.turn()
      await former?.beat()
      return
    }
    case 'flush':
      await redis.client.flushall()
      return
    case 'offer': {
      const free = [...world.model.jobs.values()].filter(job => job.task === 'free' && job.lane !== undefined)
      const job = free[given.job % Math.max(free.length, 1)]
      const by = world.workers[given.worker]
      if (!job || !by) return
      const { id, lane, token } = job
      const call = await by.beginOffered(
        { id: id as JobId, lane: lane as number, leaseToken: String(token) },
        given.limit,
      )
      if (given.isLate) world.calls.push(call)
      else await send(world, call)
      return
    }
    case 'hint': {
      const hints = redis.hints.splice(0)
      if (hints.length > 0) await redis.index.hint(hints)
      return
    }
    default:
      throw new Error(`nobody knows how to do ${given.do}`)
  }
}

type Change = { told: ChangeOptions; modelled: Parameters<JobModel['change']>[1] }
const CHANGES: Record<(Command & { do: 'change' })['to'], () => Change> = {
  priority: () => ({ told: { priority: 3 }, modelled: { priority: 3 } }),
  later: () => ({ told: { delay: HOUR_MS }, modelled: { isDelayed: true } }),
  now: () => ({ told: { runAt: new Date(Date.now() - 1000) }, modelled: { isDelayed: false } }),
  gpu: () => ({ told: { constraints: GPU }, modelled: { constraintTag: constraintTag(GPU) } }),
  'no gpu': () => ({ told: { constraints: {} }, modelled: { constraintTag: 'c:' } }),
}

export async function rescue(world: World, limit: number): Promise<void> {
  await world.database.rows('select longshore.rescue($1, $2)', [HOUR_MS, limit])
  world.model.rescue(
    world.dead.map(({ id }) => id),
    limit,
  )
}

/** Lanes without jobs are deleted. What has ended is given to lanes that stay: the model knows no days after which it would be gone. */
async function forget({ database, model }: World, isCut: boolean): Promise<void> {
  await database.rows(
    `set session_replication_role = replica;
     update longshore.finished_jobs f
     set lane = longshore.find_lane(l.queue, l.task, '${PAST}' || l.tag, l.constraint_tag, l.concurrency_key)
     from longshore.lanes l where l.id = f.lane and not starts_with(l.tag, '${PAST}');
     set session_replication_role = origin`,
  )
  for (const job of model.jobs.values()) if (isEnded(job)) delete job.lane
  const db = asAsked(database)
  if (isCut) {
    await db.query("update longshore.forgetting set next_at = now() where step = 'resting'")
    await db.query('select longshore.forget_lanes(p_page => 2)')
    return
  }
  const { step } = await forgetOn(db, { page: 3 })
  // Marks of a round that has not ended mean nothing yet.
  if (step !== 'resting') return
  await database.rows(
    `update longshore.lanes set unused_since = unused_since - interval '400 days' where not starts_with(tag, '${PAST}')`,
  )
  await forgetOn(db, { page: 3 })
}

/** It gives back what it runs, leaves, and comes again as another. */
export async function restart(world: World, place: number, facts: Facts): Promise<void> {
  const by = world.workers[place] as HandWorker
  for (const call of world.calls.filter(call => call.by === by)) await send(world, call)
  world.calls.splice(0, Infinity, ...world.calls.filter(call => call.by !== by))
  const all = world.model.running(by.id).map((_, pick): Run => ({ pick, kind: 'released' }))
  await send(world, await by.begin(outcomesOf(world, by, all), 0))
  await by.leave()
  await unregisterWorker(world.pool, 'longshore', by.key)
  world.model.workers.delete(by.id)
  world.workers[place] = await bear(world, facts)
  await hear(world, [place])
}

/** Whatever was on its way arrives, and the relay has nothing left to do. */
export async function rest(world: World): Promise<void> {
  const { redis } = world
  for (const call of world.calls.splice(0)) await send(world, call)
  if (!redis) return
  for (const by of world.workers) await by.tell()
  await redis.relay.catchUp()
  await hear(world)
}
