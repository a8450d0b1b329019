import { setTimeout as pause } from 'node:timers/promises'
import { afterEach, describe, expect, inject, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { GraphLoad, seeded } from '../support/graph-load.ts'
import { endAtBarrier, standsAtBarrier } from '../support/locks.ts'
import { useRedis } from '../support/own-redis.ts'
import { noops, part } from '../support/process-tasks.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { type RelayProcess, useRelayProcesses } from '../support/relay-process.ts'
import { eventually, gate } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'
import { useWorkerProcesses, type WorkerProcess } from '../support/worker-process.ts'

/** `LONGSHORE_SEED` repeats what users and faults do; when exactly they do it is up to the machine. */
const SEED = Number(process.env['LONGSHORE_SEED'] ?? 20260)
const SECONDS = Number(process.env['LONGSHORE_SECONDS'] ?? 5)
const WORKERS = 3
const USERS = 4

const BARRIER = 4712

const database = useDatabase()
let proxy: StoreProxy | undefined
afterEach(async () => {
  await proxy?.close()
  proxy = undefined
  await database.rows('drop table if exists effects')
})
const redis = inject('dispatch') === 'redis' ? useRedis() : undefined
const deployment = useDeployment(database, { ...(redis ? { redis } : {}), bringsRelays: true })
const startProcess = useWorkerProcesses(database, deployment)
const startRelay = useRelayProcesses(database, deployment)

/** Terminates one that is at work on such a call, if there is one within a moment. Returns how many. */
const TERMINATE = `
  create function terminate_one(p_query text) returns int language plpgsql as $$
  declare
    v_until timestamptz := clock_timestamp() + interval '150 ms';
  begin
    while clock_timestamp() < v_until loop
      perform pg_stat_clear_snapshot();
      perform pg_terminate_backend(a.pid) from (
        select pid from pg_stat_activity
        where datname = current_database() and application_name = 'longshore' and state <> 'idle' and query like p_query
        limit 1
      ) a;
      if found then
        return 1;
      end if;
    end loop;
    return 0;
  end $$`

/** A failure has halted it: nobody but who had the turn already has started since. Then it goes on. */
const checkAndResume = async (producer: ReturnType<typeof deployment.producer>) => {
  const halted = await database.rows<{ key: string; started: number; allowed: number }>(
    `select w.key, case when f.state = 'failed' then 0 else 1 end as allowed,
       (select count(distinct c.job_id)::int from journal.changes c
        where c.workflow = w.id and c.was = 'ready' and c.state = 'running' and c.no > g.no) as started
     from longshore.workflows w
     join longshore.finished_jobs f on f.id = w.halted_by
     join journal.changes g on g.job_id = w.halted_by and g.state is null`,
  )
  for (const { key, started, allowed } of halted) {
    expect(started, `of ${key} after its halt`).toBeLessThanOrEqual(allowed)
    await producer.resumeWorkflow(key)
  }
}

// In direct mode with `npm run test:all`: fewer things can be killed there.
it.runIf(redis || process.env['LONGSHORE_ALL'])(
  '[S3] [S4] [S5] [S7] [W2] [X4] groups and workflows hold while workers, the relay, Redis and connections are killed',
  async () => {
    process.stdout.write(`graphs under faults: LONGSHORE_SEED=${SEED} LONGSHORE_SECONDS=${SECONDS}\n`)
    const killer = await database.connect()
    await killer.query('create table effects (job_id uuid not null)')
    await killer.query(TERMINATE)
    const terminate = async (query: string) => {
      const { rows } = await killer.query('select terminate_one($1) as hits', [`%${query}%`])
      return rows[0].hits === 1
    }
    const random = seeded(SEED)
    const relays: RelayProcess[] = []
    if (redis) {
      const leader = await startRelay()
      await leader.leads()
      relays.push(leader, await startRelay())
    }
    const start = () => startProcess({ lease: '2s', maxConcurrentTasks: 10 })
    const workers: WorkerProcess[] = await Promise.all(Array.from({ length: WORKERS }, start))
    const load = new GraphLoad(database)
    const producers = [0, 1].map(() =>
      deployment.producer({ tasks: [part], ...(redis ? { redis: redis.url } : {}) }),
    )
    let isOver = false
    const users = Array.from({ length: USERS }, (_, n) => {
      const producer = producers[n % producers.length]
      if (!producer) throw new Error('no producer')
      return load.use(producer, seeded(SEED + n + 1), () => isOver)
    })

    const starting: Promise<unknown>[] = []
    const replace = <T>(list: T[], old: T | undefined, begin: () => Promise<T>) => {
      list.splice(list.indexOf(old as T), 1)
      starting.push(begin().then(each => list.push(each)))
    }
    const done: Record<string, number> = {}
    const until = performance.now() + SECONDS * 1000
    while (performance.now() < until) {
      await pause(50 + random() * 300)
      const dice = Object.keys(done).length === 0 ? 0 : random() // a kill at first, whatever the seed
      let fault: string
      if (dice < 0.25) {
        fault = 'worker killed'
        const victim = workers[Math.floor(random() * workers.length)]
        if (workers.length < WORKERS || !victim) continue
        await victim.kill()
        replace(workers, victim, start)
      } else if (dice < 0.35) {
        fault = 'worker paused'
        const victim = workers[Math.floor(random() * workers.length)]
        victim?.pause()
        await pause(random() < 0.3 ? 2500 : 200)
        victim?.resume()
      } else if (dice < 0.5) {
        if (!(await terminate('settle_and_claim'))) continue
        fault = 'settle terminated'
      } else if (dice < 0.6) {
        if (!(await terminate('.complete('))) continue
        fault = 'completion terminated'
      } else if (dice < 0.7) {
        if (!(await terminate('add_to_group'))) continue
        fault = 'submission terminated'
      } else if (dice < 0.8) {
        if (!(await terminate('close_groups'))) continue
        fault = 'close terminated'
      } else if (!redis || dice < 0.85) {
        fault = 'all connections terminated'
        await killer.query(
          `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'longshore'`,
        )
      } else if (dice < 0.92) {
        fault = 'Redis emptied'
        await redis.command('FLUSHALL')
      } else {
        fault = 'relay killed'
        const victim = relays[Math.floor(random() * relays.length)]
        if (relays.length < 2 || !victim) continue
        await victim.kill()
        replace(relays, victim, startRelay)
      }
      done[fault] = (done[fault] ?? 0) + 1
    }
    isOver = true
    await Promise.all(users)
    await Promise.all(starting)

    const [producer] = producers
    if (!producer) throw new Error('no producer')
    await eventually(
      'nothing is left',
      async () => {
        await checkAndResume(producer)
        return (await load.left()) === 0
      },
      30_000,
    )
    await deployment.atRest()
    process.stdout.write(
      `${load.jobs.size} jobs, ${load.groups.size} groups; ${JSON.stringify(done)}; slowest ${JSON.stringify(load.slowest)}\n`,
    )
    expect(load.errors).toEqual([])
    expect(await load.problems()).toEqual([])
  },
  60_000 + SECONDS * 2000,
)

/** A worker that does the upkeep from the start, so that no test waits for that lease to run out. */
const startLeader = async () => {
  const [noop] = noops
  if (noop) await deployment.worker({ handlers: [noop.handle(() => undefined)] })
}

describe.skipIf(redis)('a worker killed', () => {
  it('[S5] [S10] between the commit of the last job and the close of its group leaves the close to the sweep', async () => {
    await startLeader()
    const producer = deployment.producer({ tasks: [part] })
    const blocker = await database.connect()
    const pauses = { name: 'close_groups', point: 'start', insertion: pauseAt(BARRIER) }
    await weakened(database, [pauses], async () => {
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      const doomed = await startProcess({ lease: '2s' })
      const group = producer.group()
      group.add(part, { ms: 0, way: 'succeed' })
      await group.submit()
      await eventually(
        'the job has ended',
        async () => (await database.rows('select from longshore.jobs')).length === 0,
      )
      await standsAtBarrier(database, '.close_groups(')
      await doomed.kill()
      await endAtBarrier(database, '.close_groups(')
      expect((await producer.getGroup(group))?.state).toBe('dispatching')
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      expect(await producer.waitForGroup(group)).toMatchObject({
        state: 'succeeded',
        counts: { succeeded: 1 },
      })
    })
    await deployment.atRest()
  })

  it('[S3] [S7] inside ctx.complete of a job with dependents: neither is done, then both, once', async () => {
    await startLeader()
    await database.rows('create table effects (job_id uuid not null)')
    const producer = deployment.producer({ tasks: [part] })
    const blocker = await database.connect()
    const pauses = { name: 'complete', point: 'completed', insertion: pauseAt(BARRIER) }
    const group = producer.group()
    const parent = group.add(part, { ms: 0, way: 'complete' })
    const child = group.add(part, { ms: 0, way: 'succeed' }, { after: parent, workflow: 'w' })
    const next = group.add(part, { ms: 0, way: 'succeed' }, { workflow: 'w' })
    await weakened(database, [pauses], async () => {
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      const doomed = await startProcess({ lease: '2s' })
      await group.submit()
      await standsAtBarrier(database, '.complete(')
      await doomed.kill()
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
    })
    await startProcess()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded', counts: { succeeded: 3 } })
    expect(await database.rows('select job_id from effects')).toEqual([{ job_id: parent.id }])
    const ended = (await deployment.runs()).filter(run => run.wentTo === 'ended')
    expect(ended.map(run => run.jobId)).toEqual([parent.id, child.id, next.id])
    await deployment.atRest({ enqueued: [parent, child, next] })
  })
})

describe.skipIf(redis)('the reply to the end of a job with dependents lost', () => {
  const step = defineTask<string>({ name: 'step' })

  it.each(['settle_and_claim', 'commit'])(
    '[S3] [S10] (%s): each of them is counted down once',
    async call => {
      await startLeader()
      const theProxy = await startProxy(database.urlOf('worker'))
      proxy = theProxy
      const producer = deployment.producer({ tasks: [step] })
      const slow = gate()
      let lost: Promise<void> | undefined
      await deployment.worker({
        postgres: theProxy.url,
        handlers: [
          step.handle(async ({ payload }, ctx) => {
            if (payload === 'slow') await slow.opened
            if (payload !== 'lose') return
            if (call === 'commit') {
              await ctx.complete(() => {
                lost = theProxy.loseReplyTo('commit', '.complete(')
              })
            } else lost = theProxy.loseReplyTo(call)
          }),
        ],
      })
      const group = producer.group()
      const others = ['slow', 'slow'].map(payload => group.add(step, payload))
      const children = ['a', 'b'].map(payload => group.add(step, payload, { after: others }))
      const lose = group.add(step, 'lose', { name: 'lose' })
      for (const child of children) child.after(lose)
      await group.submit()
      expect(await producer.waitFor(lose)).toMatchObject({ state: 'succeeded', attempts: 1 })
      await lost
      await eventually('the worker is back', async () => {
        const rows = await database.rows("select from longshore.jobs where state = 'running'")
        return rows.length === 2
      })
      expect(await database.rows("select pending from longshore.jobs where state = 'waiting'")).toEqual([
        { pending: 2 },
        { pending: 2 },
      ])
      slow.open()
      expect(await producer.waitForGroup(group)).toMatchObject({
        state: 'succeeded',
        counts: { succeeded: 5 },
      })
      await deployment.atRest()
    },
  )
})

describe.runIf(redis)('a relay', () => {
  it('[S3] [S10] [X7] killed between apply and delete of 1,000 that one end made ready: they run once', async () => {
    const [noop] = noops
    if (!noop) throw new Error('no task')
    const leader = await startRelay()
    await leader.leads()
    const standby = await startRelay()
    const producer = deployment.producer({ tasks: [noop, part] })
    const group = producer.group()
    const top = group.add(part, { ms: 0, way: 'succeed' })
    for (let n = 0; n < 1000; n++) group.add(noop, n, { after: top })
    await group.submit()
    const hand = await workByHand(database, ['part'])
    const [claimed] = await hand.claim(1)
    if (!claimed) throw new Error('not claimed')
    const outbox = () => database.rows('select from longshore.outbox')
    await eventually('the outbox is empty', async () => (await outbox()).length === 0)
    const blocker = await database.connect()
    const pauses = { name: 'relay_read', point: 'before-delete', insertion: pauseAt(BARRIER) }
    await weakened(database, [pauses], async () => {
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      await hand.settle([settling(claimed)])
      await standsAtBarrier(database, 'relay_read')
      expect((await outbox()).length).toBeGreaterThan(0)
      await leader.kill()
      await endAtBarrier(database, 'relay_read')
    })
    await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
    await standby.leads()
    await startProcess()
    expect(await producer.waitForGroup(group)).toMatchObject({
      state: 'succeeded',
      counts: { succeeded: 1001 },
    })
    expect((await deployment.runs()).filter(run => run.wentTo === 'ended')).toHaveLength(1001)
    await deployment.atRest()
  })
})
