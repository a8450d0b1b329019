/**
 * The red side of telling others: whatever makes a job ready, or no longer ready, leaves word for the relay in the same transaction, or
 * wakes a worker that sleeps.
 */
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { channelName } from '../../src/postgres/schema-name.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useGuards } from '../support/guards.ts'
import type { Weakness } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin } = useGuards(database, deployment)
const task = defineTask({ name: 'task' })
const limited = defineTask({ name: 'limited', concurrency: 1 })

// A transaction of ours may hold several of Postgres's own: the rows themselves do not tell.
beforeAll(() =>
  database.rows(
    `create table journal.noted (job_id uuid not null, tx xid8 not null default pg_current_xact_id());
     create function journal.note_row() returns trigger language plpgsql as $$
     begin
       insert into journal.noted (job_id) select unnest(new.jobs);
       return null;
     end $$;
     create trigger journal_noted after insert on longshore.outbox for each row execute function journal.note_row()`,
  ),
)

/** A job that became ready, or ceased to be, without a row of the same transaction that names it. Whoever claims tells Redis itself. */
const unnoted = async () => {
  const rows = await database.rows<{ problem: string }>(
    `select format('a job went from %s to %s, and no row of that transaction names it', coalesce(c.was::text, 'nowhere'),
       coalesce(c.state::text, 'its end')) as problem
     from journal.changes c
     where 'ready' in (c.was, c.state) and c.state is distinct from 'running'
       and not exists (select from journal.noted n where n.job_id = c.job_id and n.tx = c.tx)`,
  )
  return rows[0]?.problem
}

const enqueue = (count = 1) =>
  deployment.producer().enqueueMany(
    task,
    Array.from({ length: count }, (_, n) => n),
  )
const claimed = async () => {
  await enqueue()
  const worker = await workByHand(database, ['task'])
  const [run] = await worker.claim(1)
  return { worker, run: run as Claimed }
}
const submitPair = async () => {
  const producer = deployment.producer()
  const group = producer.group()
  const parent = group.add(task, 'parent')
  group.add(task, 'child', { after: parent })
  await group.submit()
  return { producer, group }
}

/** Each makes a job ready that was not, or the other way round. Without `bell`: nobody has to be woken for it. */
const verbs: { verb: string; note: Weakness; bell?: Weakness; happens: () => Promise<unknown> }[] = [
  {
    verb: 'an enqueue of jobs of one kind',
    note: { name: 'enqueue_plain', guard: 'tell-relay' },
    bell: { name: 'enqueue_plain', guard: 'wake-worker' },
    happens: () => enqueue(),
  },
  {
    verb: 'an enqueue with options',
    note: { name: 'insert_jobs', guard: 'tell-relay' },
    bell: { name: 'insert_jobs', guard: 'wake-worker' },
    happens: () => database.rows(`select longshore.enqueue('task', '1', '{"priority": 3}')`),
  },
  {
    verb: 'an enqueue of jobs of several kinds',
    note: { name: 'insert_jobs', guard: 'tell-relay' },
    bell: { name: 'insert_jobs', guard: 'wake-worker' },
    happens: async () => {
      const producer = deployment.producer()
      await Promise.all([
        producer.enqueue(task, 1, { priority: 1 }),
        producer.enqueue(task, 2, { priority: 2 }),
        producer.enqueue(task, 3, { priority: 3 }),
      ])
    },
  },
  {
    verb: 'a submission of a group',
    note: { name: 'insert_linked', guard: 'tell-relay' },
    bell: { name: 'announce_ready', guard: 'wake-worker' },
    happens: submitPair,
  },
  {
    verb: 'the end of what a job waited for',
    note: { name: 'pass_on', guard: 'tell-relay' },
    bell: { name: 'pass_on', guard: 'wake-worker' },
    happens: async () => {
      await submitPair()
      const worker = await workByHand(database, ['task'])
      const [run] = await worker.claim(1)
      await hush()
      await worker.settle([settling(run as Claimed)])
    },
  },
  {
    verb: 'a job that comes due',
    note: { name: 'promote_due', guard: 'tell-relay' },
    bell: { name: 'promote_due', guard: 'wake-worker' },
    happens: async () => {
      await deployment.producer().enqueue(task, 1, { delay: 1 })
      await hush()
      await database.rows('select longshore.promote_due(10), pg_sleep(0.01)')
      await database.rows('select longshore.promote_due(10)')
    },
  },
  {
    verb: 'a run that is given back',
    note: { name: 'settle_unsuccessful', guard: 'tell-relay' },
    bell: { name: 'send_back', guard: 'wake-worker' },
    happens: async () => {
      const { worker, run } = await claimed()
      await hush()
      await worker.settleOthers([{ ...settling(run), outcome: 'released' }])
    },
  },
  {
    verb: 'a rescue',
    note: { name: 'rescue', guard: 'tell-relay' },
    bell: { name: 'send_back', guard: 'wake-worker' },
    happens: async () => {
      const { worker } = await claimed()
      await hush()
      await database.rows(
        "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
        [worker.id],
      )
      await database.rows('select longshore.rescue(3600000, 10)')
    },
  },
  {
    verb: 'a change',
    note: { name: 'change', guard: 'tell-relay' },
    bell: { name: 'change', guard: 'wake-worker' },
    happens: async () => {
      const producer = deployment.producer()
      const job = await producer.enqueue(task, 1, { delay: '1h' })
      await hush()
      await producer.change(job, { delay: 0 })
    },
  },
  {
    verb: 'a cancel',
    note: { name: 'cancel', guard: 'tell-relay' },
    happens: async () => {
      const [job] = await enqueue()
      await deployment.producer().cancel(job?.id as string)
    },
  },
  {
    verb: 'a cancel of a group',
    note: { name: 'cancel_any_group', guard: 'tell-relay' },
    happens: async () => {
      const { producer, group } = await submitPair()
      await producer.cancelGroup(group)
    },
  },
]

const byVerb = <T extends { verb: string }>(list: readonly T[]) => list.map(one => [one.verb, one] as const)

const bells: string[] = []
let ears: Awaited<ReturnType<typeof database.connect>> | undefined
const hush = async () => {
  await ears?.query('select 1') // notifications come before the answer
  bells.length = 0
}
afterEach(hush)

/** One more worker, which sleeps. */
const sleeper = async (tasks: string[]) => {
  const { id } = await workByHand(database, tasks)
  await database.rows('update longshore.workers set listening = true where id = $1', [id])
  if (!ears) {
    ears = await database.connect()
    ears.on('notification', ({ payload }) => bells.push(payload ?? ''))
  }
  await ears.query(`listen ${ears.escapeIdentifier(channelName('longshore', `worker_${id}`))}`)
}

describe('the relay is told by the transaction itself of', () => {
  it.each(byVerb(verbs))('[S14] %s', (_, { note, happens }) =>
    check({
      rule: 'an outbox row in the same transaction',
      without: note,
      happens: async () => {
        await database.rows("update longshore.settings set dispatch = 'redis'")
        await happens()
        return unnoted()
      },
      tells: /no row of that transaction names it/,
    }),
  )

  it('[L7] a slot that is free again, where somebody waits for it', () =>
    check({
      rule: 'an outbox row names the limit',
      without: {
        name: 'open_limits',
        guard: 'tell-relay',
      },
      happens: async () => {
        await database.rows("update longshore.settings set dispatch = 'redis'")
        await deployment.producer({ tasks: [limited] }).enqueueMany(limited, [1, 2])
        const worker = await workByHand(database, ['limited'])
        const [run] = await worker.claim(1)
        await worker.claim(1)
        await database.rows('delete from longshore.outbox')
        await worker.settle([settling(run as Claimed)])
        const rows = await database.rows("select from longshore.outbox where limits <> '{}'")
        if (rows.length === 0) return 'nobody is told of the slot'
      },
      tells: /nobody is told of the slot/,
    }))

  it('[D11] a worker that comes, leaves or dies', async () => {
    const told = async () =>
      (await database.rows("select from longshore.outbox where workers <> '{}'")).length
    const prepare = () => database.rows("update longshore.settings set dispatch = 'redis'")
    const register = () =>
      database.rows<{ id: number }>(
        "select longshore.register_worker('new', '{default}', '{task}', '{default}', '{}', '{c:}', 15000) as id",
      )
    await check({
      rule: 'word of a worker that comes',
      without: { name: 'register_worker', guard: 'tell-relay' },
      happens: async () => {
        await prepare()
        await register()
        if ((await told()) === 0) return 'nobody is told of the worker'
      },
      tells: /nobody is told of the worker/,
    })
    await check({
      rule: 'word of a worker that leaves',
      without: { name: 'unregister_worker', guard: 'tell-relay' },
      happens: async () => {
        const [row] = await register()
        await prepare()
        await database.rows('select longshore.unregister_worker($1)', [row?.id])
        if ((await told()) === 0) return 'nobody is told of the worker'
      },
      tells: /nobody is told of the worker/,
    })
    await check({
      rule: 'word of a worker that dies',
      without: { name: 'rescue', guard: 'tell-of-dead' },
      happens: async () => {
        await register()
        await prepare()
        await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
        await database.rows('select longshore.rescue(3600000, 10)')
        if ((await told()) === 0) return 'nobody is told of the worker'
      },
      tells: /nobody is told of the worker/,
    })
  })

  it('what was committed after it fell asleep: it is looked at with the commit, not before', async () => {
    await database.rows("update longshore.settings set dispatch = 'redis'")
    const listener = await database.connect()
    const heard: unknown[] = []
    listener.on('notification', message => heard.push(message))
    await listener.query(`listen ${listener.escapeIdentifier(channelName('longshore', 'outbox'))}`)
    const commitWhenAsleep = async (isLate: boolean) => {
      await database.rows('update longshore.leader set asleep = false')
      const tx = await begin()
      if (!isLate) await tx.query('set constraints longshore.outbox_written immediate')
      await deployment.producer().enqueue(task, 1, { tx })
      await database.rows('update longshore.leader set asleep = true')
      await tx.query('commit')
      await listener.query('select 1')
      return heard.splice(0).length
    }
    expect(await commitWhenAsleep(true)).toBe(1)
    // At the time of the insert the relay was still awake.
    expect(await commitWhenAsleep(false)).toBe(0)
    await database.rows('update longshore.leader set asleep = false')
  })
})

describe('a worker that sleeps is woken by', () => {
  const ringing = verbs.flatMap(({ bell, ...verb }) => (bell ? [{ ...verb, bell }] : []))
  it.each(byVerb(ringing))('[S6] %s', (_, { bell, happens }) =>
    check({
      rule: 'a bell for whoever sleeps',
      without: bell,
      happens: async () => {
        await hush()
        await sleeper(['task'])
        await happens()
        await ears?.query('select 1')
        if (bells.length === 0) return 'the worker sleeps on'
      },
      tells: /the worker sleeps on/,
    }),
  )

  it.each([
    ['task', "'other'"],
    ['tag', `'task', '{}', '{"tag": "eu"}'`],
    ['constraints', `'task', '{}', '{"constraints": {"gpu": "a100"}}'`],
    ['queue', `'task', '{}', '{"queue": "mail"}'`],
  ])('[S6] no job that it may not run, by its %s', (guard, job) =>
    check({
      rule: 'a bell only for a worker that may run the job',
      without: { name: 'worker_lanes', guard, replacement: 'true' },
      happens: async () => {
        await hush()
        await sleeper(['task'])
        await database.rows(`select longshore.enqueue(${job})`)
        await ears?.query('select 1')
        if (bells.length > 0) return 'the worker wakes up for nothing'
      },
      tells: /for nothing/,
    }),
  )

  it('[L7] a slot that is free again', () =>
    check({
      rule: 'a bell for a slot',
      without: { name: 'reopen', guard: 'ring' },
      happens: async () => {
        await deployment.producer({ tasks: [limited] }).enqueueMany(limited, [1, 2])
        const worker = await workByHand(database, ['limited'])
        const [run] = await worker.claim(1)
        await worker.claim(1)
        await hush()
        await sleeper(['limited'])
        await worker.settle([settling(run as Claimed)])
        await ears?.query('select 1')
        if (bells.length === 0) return 'the worker sleeps on'
      },
      tells: /the worker sleeps on/,
    }))
})
