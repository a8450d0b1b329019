/** Lanes, tasks and queues that are not used are forgotten: the red side, with every transaction that may be using them meanwhile. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { TestClient } from '../support/database.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { asAsked, beginAnew, type Forgotten, forgetOn, passDays } from '../support/forgetting.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { standsAtBarrier } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const BARRIER = 71
const LONG = 400
const HOUR = '{"delayMs": 3600000}'

const anew = () => beginAnew(database)
beforeEach(anew)

const round = () => forgetOn(asAsked(database))
/** Plain, and the way of all other jobs. */
const plainly = (client: Pick<TestClient, 'query'>) =>
  client.query(
    "select longshore.enqueue_plain('default', 't', 'default', 0, 3, array[gen_random_uuid()], '{}', false)",
  )
const otherwise = (client: Pick<TestClient, 'query'>, options = HOUR) =>
  client.query("select longshore.enqueue('t', '{}', $1)", [options])
const onAny = {
  query: (text: string, values?: unknown[]) => database.rows(text, values),
} as unknown as TestClient

/** A lane of task t that has never had a job. */
const freshLane = async (key = '') => {
  await anew()
  await database.rows("select longshore.make_lane('default', 't', 'default', 'c:', $1)", [key])
}
/** The same, marked as unused by a whole round, long ago. */
const unusedLane = async () => {
  await freshLane()
  await round()
  await passDays(database, LONG)
}
/** A job of task t has just ended. */
const endedJob = async () => {
  await otherwise(onAny)
  await database.rows('select longshore.cancel(array(select id from longshore.jobs))')
}

const waitsForLock = async (client: TestClient) => {
  const rows = await database.rows(
    "select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'",
    [client.backendPid],
  )
  return rows.length > 0
}
/** A round beside transactions: goes on until it ends or waits for one of their locks. */
const roundBeside = async (): Promise<{ ended: Promise<Forgotten> }> => {
  const client = await database.connect()
  let isOver = false
  const ended = forgetOn(client).finally(() => {
    isOver = true
  })
  underWay(ended)
  await eventually('the round has ended or waits', async () => isOver || (await waitsForLock(client)))
  return { ended }
}

/** A transaction stands behind its look for a lane, while a round, days and another round go by. */
const whileFinding = async (enqueue: (client: TestClient) => Promise<unknown>, query: string) => {
  await freshLane()
  const held = await barrier(BARRIER)
  const user = await database.connect()
  const enqueued = underWay(enqueue(user))
  await standsAtBarrier(database, query)
  const first = await round()
  await passDays(database, LONG)
  if (first.step === 'resting') await round()
  await held.open()
  await enqueued
}

/** An open transaction uses a lane that was marked long ago, and a round goes by. */
const whileUsing = async (enqueue: (client: TestClient) => Promise<unknown>) => {
  await unusedLane()
  const user = await begin()
  await enqueue(user)
  const { ended } = await roundBeside()
  await user.query('commit')
  await ended
  await round()
}

/** A transaction sees the tables as they were before the lane was marked. */
const withOldSnapshot = async (enqueue: (client: TestClient) => Promise<unknown>) => {
  await freshLane()
  const user = await begin()
  await user.query('set transaction isolation level repeatable read')
  await user.query('select count(*) from longshore.lanes')
  await round()
  await passDays(database, LONG)
  await enqueue(user)
  const { ended } = await roundBeside()
  await user.query('commit')
  await ended
  await round()
}

const uses: Guard[] = [
  {
    rule: 'a plain enqueue takes its number before it looks for its lane',
    given: [{ name: 'enqueue_plain', point: 'found', insertion: pauseAt(BARRIER) }],
    without: { name: 'enqueue_plain', guard: 'number-first' },
    happens: () => whileFinding(plainly, 'enqueue_plain'),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'any other enqueue takes its number before it looks for its lane',
    given: [{ name: 'find_lane', point: 'found', insertion: pauseAt(BARRIER) }],
    without: { name: 'find_lane', guard: 'number-first' },
    happens: () => whileFinding(otherwise, 'longshore.enqueue('),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a plain enqueue takes no lane that is marked without a word',
    without: { name: 'enqueue_plain', guard: 'not-marked' },
    happens: () => whileUsing(plainly),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'any other enqueue takes no lane that is marked without a word',
    without: { name: 'find_lane', guard: 'not-marked' },
    happens: () => whileUsing(otherwise),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a plain enqueue does not trust a snapshot that may be older than a mark',
    without: { name: 'enqueue_plain', guard: 'own-snapshot' },
    happens: () => withOldSnapshot(plainly),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'no other enqueue trusts a snapshot that may be older than a mark',
    without: { name: 'find_lane', guard: 'own-snapshot' },
    happens: () => withOldSnapshot(otherwise),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a transaction holds the marked lane that it uses',
    without: { name: 'use_lane', guard: 'relied-on' },
    happens: () => whileUsing(plainly),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a transaction notes that it uses a marked lane',
    without: { name: 'use_lane', guard: 'note-use' },
    happens: () => whileUsing(plainly),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a lane that a transaction relies on is passed over',
    without: { name: 'delete_lanes', guard: 'relied-on' },
    happens: () => whileUsing(plainly),
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a lane whose use was noted after the round had looked is not deleted',
    given: [{ name: 'delete_lanes', point: 'start', insertion: pauseAt(BARRIER) }],
    without: { name: 'delete_lanes', guard: 'not-used' },
    happens: async () => {
      await markedLane()
      const held = await barrier(BARRIER)
      const client = await database.connect()
      const ended = underWay(forgetOn(client))
      await standsAtBarrier(database, 'forget_lanes')
      await plainly(onAny)
      await held.open()
      await ended
      await round()
    },
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'the mark of a lane goes with what was noted of it',
    without: { name: 'forget_lanes', guard: 'clear-used' },
    happens: async () => {
      await unusedLane()
      await plainly(onAny)
      await round()
    },
    tells: /its lane \d+ does not exist/,
  },
]

/** A session that has set this goes on. */
const PAUSE_OF_ONE = `
  if current_setting('longshore_test.passes', true) is distinct from 'true' then
    ${pauseAt(BARRIER)}
  end if;`

/** Without a round, which would come to the barrier: marked by hand. */
const markedLane = async () => {
  await freshLane()
  await database.rows('update longshore.lanes set unused_since = now()')
  await passDays(database, LONG)
}

const rounds: Guard[] = [
  {
    rule: 'a round waits for transactions that have not seen its marks',
    without: { name: 'forget_lanes', guard: 'wait-for-all', replacement: 'true' },
    happens: async () => {
      await freshLane()
      const user = await begin()
      await plainly(user)
      const { step } = await round()
      await user.query('commit')
      if (step !== 'resting') await round()
      await passDays(database, LONG)
      await round()
    },
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a lane with a job that is not ready yet is not unused',
    without: { name: 'forget_lanes', guard: 'clear-busy' },
    happens: async () => {
      await freshLane()
      await otherwise(onAny)
      await round()
      await passDays(database, LONG)
      await round()
    },
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'one process at a time goes on with a round',
    given: [{ name: 'forget_lanes', point: 'held', insertion: PAUSE_OF_ONE }],
    without: { name: 'forget_lanes', guard: 'one-at-a-time' },
    happens: async () => {
      await freshLane()
      await otherwise(onAny)
      await database.rows("update longshore.forgetting set step = 'names', began_at = now()")
      const held = await barrier(BARRIER)
      const slow = await database.connect()
      const ended = underWay(slow.query('select longshore.forget_lanes()'))
      await standsAtBarrier(database, 'forget_lanes')
      // Another leader, which passes the barrier: it ends this round, and marks in the next.
      const other = await database.connect()
      await other.query('set longshore_test.passes = true')
      await forgetOn(other, { begins: false })
      await other.query("update longshore.forgetting set next_at = now() where step = 'resting'")
      await other.query('select longshore.forget_lanes()')
      await held.open()
      await ended
      await forgetOn(other, { begins: false })
      await passDays(database, LONG)
      await forgetOn(other)
    },
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'the marks of a round that came to no end count for nothing',
    without: { name: 'delete_lanes', guard: 'whole-round' },
    happens: async () => {
      await freshLane()
      await otherwise(onAny)
      await database.rows("update longshore.lanes set unused_since = now() - interval '39 days'")
      await database.rows(
        "update longshore.forgetting set step = 'waiting', began_at = now() - interval '40 days'",
      )
      await round()
    },
    tells: /its lane \d+ does not exist/,
  },
  {
    rule: 'a lane that was marked by a round without an end is unused from the next round on',
    without: { name: 'forget_lanes', guard: 'mark-anew' },
    happens: async () => {
      await freshLane()
      await endedJob()
      await database.rows("update longshore.lanes set unused_since = now() - interval '39 days'")
      await database.rows(
        "update longshore.forgetting set step = 'waiting', began_at = now() - interval '40 days'",
      )
      await round()
      await round()
    },
    tells: /its lane \d+ does not exist, so its task is not known/,
  },
  {
    rule: 'a round that takes longer than a day begins again',
    without: { name: 'forget_lanes', guard: 'within-a-day', replacement: 'and false' },
    happens: async () => {
      await freshLane()
      await endedJob()
      await database.rows("update longshore.lanes set unused_since = now() - interval '39 days'")
      await database.rows(
        "update longshore.forgetting set step = 'clearing', began_at = now() - interval '40 days'",
      )
      await round()
      await round()
    },
    tells: /its lane \d+ does not exist, so its task is not known/,
  },
  {
    rule: 'a lane stays as long as the history of its jobs',
    without: { name: 'delete_lanes', guard: 'history-gone' },
    happens: async () => {
      await endedJob()
      await round()
      await passDays(database, 6)
      await round()
    },
    tells: /its lane \d+ does not exist, so its task is not known/,
  },
  {
    rule: 'jobs that ended under a longer retention keep their lane as long as that said',
    without: { name: 'delete_lanes', guard: 'longer-kept', replacement: 'true' },
    happens: async () => {
      await anew()
      await database.rows('update longshore.settings set retention_days = 60')
      await endedJob()
      await database.rows('update longshore.settings set retention_days = 7')
      await round()
      await passDays(database, 20)
      await round()
    },
    tells: /its lane \d+ does not exist, so its task is not known/,
  },
  {
    rule: 'a lane stays as long as lanes with keys are below it',
    without: { name: 'delete_lanes', guard: 'no-keys' },
    happens: async () => {
      await freshLane('a')
      await database.rows(
        "update longshore.lanes set unused_since = now() - interval '400 days' where concurrency_key = ''",
      )
      await round()
    },
    tells: /is below lane \d+, which does not exist/,
  },
  {
    rule: 'a lane stays while claims are led to it',
    without: { name: 'delete_lanes', guard: 'no-head-left', replacement: 'true' },
    happens: async () => {
      await freshLane('a')
      await database.rows(
        `insert into longshore.lane_heads (parent, lane, score, job_id)
         select parent, id, 1, gen_random_uuid() from longshore.lanes where concurrency_key <> ''`,
      )
      await round()
      await passDays(database, LONG)
      const claim = await begin()
      await claim.query('select from longshore.lane_heads for update')
      await round()
      await claim.query('commit')
    },
    tells: /claims are led to lane \d+, which does not exist/,
  },
  {
    rule: 'the relay is told of lanes that go',
    without: { name: 'delete_lanes', guard: 'tell-relay' },
    happens: async () => {
      await unusedLane()
      await database.rows("update longshore.settings set dispatch = 'redis'")
      await round()
      if ((await database.rows("select from longshore.outbox where lanes <> '{}'")).length === 0)
        return 'nothing is in the outbox'
    },
    tells: /nothing is in the outbox/,
  },
]

const TASK = JSON.stringify([{ name: 't', queue: 'default', tag: 'default', maxAttempts: 3, concurrency: 2 }])
/** A task that was registered once, and whose lane has gone. */
const oldTask = async () => {
  await anew()
  await database.rows('select longshore.register_tasks($1)', [TASK])
  await database.rows("update longshore.tasks set registered_at = now() - interval '50 days'")
  await round()
  await passDays(database, LONG)
}
const isKnown = async () => (await database.rows("select from longshore.tasks where name = 't'")).length > 0
const missing = async () => {
  await round()
  if (!(await isKnown())) return 'the task is forgotten'
}

const registeredAgain = async (verb: string) => {
  await oldTask()
  await database.rows(`select longshore.${verb}($1)`, [TASK])
  await database.rows("update longshore.lanes set unused_since = now() - interval '400 days'")
  await database.rows('delete from longshore.lane_uses')
  return missing()
}

const names: Guard[] = [
  {
    rule: 'a task stays for a month after it was registered',
    without: { name: 'forget_names', guard: 'not-registered', replacement: 'true' },
    happens: async () => {
      await oldTask()
      await database.rows("update longshore.tasks set registered_at = now() - interval '29 days'")
      return missing()
    },
    tells: /the task is forgotten/,
  },
  {
    rule: 'a task stays as long as it has a lane',
    without: { name: 'forget_names', guard: 'no-lane' },
    happens: async () => {
      await oldTask()
      await database.rows('update longshore.lanes set unused_since = null')
      return missing()
    },
    tells: /the task is forgotten/,
  },
  {
    rule: 'a task stays as long as a worker serves it',
    without: { name: 'forget_names', guard: 'no-worker' },
    happens: async () => {
      await oldTask()
      await database.rows(
        "select longshore.register_worker('w', '{default}', '{t}', '{default}', '{}', '{c:}', 60000)",
      )
      return missing()
    },
    tells: /the task is forgotten/,
  },
  {
    rule: 'a task stays as long as slots of its limit are used',
    without: { name: 'forget_names', guard: 'no-slot-used' },
    happens: async () => {
      await oldTask()
      await database.rows('update longshore.slot_groups set used = 1')
      const said = await missing()
      await database.rows('update longshore.slot_groups set used = 0')
      return said
    },
    tells: /the task is forgotten/,
  },
  {
    rule: 'a worker that registers a task which is known already keeps it',
    without: { name: 'register_tasks', guard: 'still-known', replacement: 'true' },
    happens: () => registeredAgain('register_tasks'),
    tells: /the task is forgotten/,
  },
  {
    rule: 'a producer that registers a task which is known already keeps it',
    without: { name: 'register_tasks_if_new', guard: 'still-known', replacement: 'true' },
    happens: () => registeredAgain('register_tasks_if_new'),
    tells: /the task is forgotten/,
  },
  {
    rule: 'there are no more queues than the settings say',
    without: { name: 'check_queues', guard: 'most-queues' },
    happens: async () => {
      await anew()
      await database.rows('update longshore.settings set max_queues = 2')
      for (const queue of ['a', 'b']) await otherwise(onAny, JSON.stringify({ queue }))
      const said = await otherwise(onAny, JSON.stringify({ queue: 'c' })).then(
        () => 'a third queue was made',
        error => expect((error as { code?: string }).code).toBe('LS011'),
      )
      await otherwise(onAny, JSON.stringify({ queue: 'b', tag: 'other' }))
      return said
    },
    tells: /a third queue was made/,
  },
]

describe('forgetting what is not used', () => {
  it.each(byRule(uses))('[X12] %s', async (_, guard) => check(guard))
  it.each(byRule(rounds))('[X12] %s', async (_, guard) => check(guard))
  it.each(byRule(names))('[X12] %s', async (_, guard) => check(guard))
})
