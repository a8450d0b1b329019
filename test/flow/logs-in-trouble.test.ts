import { describe, expect, it } from 'vitest'
import { defineTask, type JobContext, type LogLine } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeDay } from '../support/make-day.ts'
import { talk } from '../support/process-tasks.ts'
import { eventually, gate } from '../support/signals.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

/** Logs so many lines. */
const chatty = defineTask<number>({ name: 'chatty', retry: { maxAttempts: 1 } })

const startChatty = () =>
  deployment.worker({
    maxLogLines: 20_000,
    handlers: [
      chatty.handle(({ payload }, ctx) => {
        for (let n = 1; n <= payload; n++) ctx.log(`line ${n}`)
        ctx.progress(payload, payload)
      }),
    ],
  })

/** Somebody holds the tables of the logs. */
async function lockLogs(): Promise<{ release(): Promise<void> }> {
  const client = await database.connect()
  await client.query('begin; lock table longshore.job_logs, longshore.job_progress in access exclusive mode')
  return { release: async () => void (await client.query('rollback')) }
}

const messages = (lines: readonly LogLine[]) => lines.map(line => line.message)
const partitions = async (of: string) =>
  (
    await database.rows<{ name: string }>(
      `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where i.inhparent = $1::regclass order by 1`,
      [`longshore.${of}`],
    )
  ).map(row => row.name)

describe('when logs cannot be stored', () => {
  it('[S8] because somebody holds the table, jobs end as ever, and the lines come when it is free', async () => {
    const producer = deployment.producer()
    const worker = await startChatty()
    const held = await lockLogs()
    const refs = await producer.enqueueMany(chatty, Array(50).fill(2))
    for (const ref of refs)
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect(worker.logCounts.written).toBe(0)
    await held.release()
    await eventually('all lines are there', async () => worker.logCounts.written === 100)
    for (const ref of refs) {
      expect(messages(await producer.getLogs(ref))).toEqual(['line 1', 'line 2'])
      expect(await producer.getProgress(ref)).toMatchObject({ done: 2, total: 2 })
    }
    expect(worker.logCounts.dropped).toEqual({ run: 0, buffer: 0, late: 0, refused: 0, stop: 0 })
  })

  it('[S8] because the table is gone, jobs end as ever, and the lines come when it is back', async () => {
    const producer = deployment.producer()
    const worker = await startChatty()
    await database.rows('alter table longshore.job_logs rename to logs_away')
    try {
      const ref = await producer.enqueue(chatty, 3)
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
      expect(worker.logCounts.written).toBe(0)
      await database.rows('alter table longshore.logs_away rename to job_logs')
      await eventually('they are there', async () => worker.logCounts.written === 3)
      expect(messages(await producer.getLogs(ref))).toEqual(['line 1', 'line 2', 'line 3'])
    } finally {
      await database.rows('alter table if exists longshore.logs_away rename to job_logs')
    }
  })

  it('[S8] for so long that the buffer is full, what is newest is dropped, counted, and told of in its place', async () => {
    const producer = deployment.producer()
    const worker = await startChatty()
    const held = await lockLogs()
    const ref = await producer.enqueue(chatty, 12_000)
    const later = await producer.enqueue(chatty, 2)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    expect(await producer.waitFor(later)).toMatchObject({ state: 'succeeded' })
    expect(worker.logCounts.dropped.buffer).toBe(2002)
    await held.release()
    await eventually('what was kept is there', async () => worker.logCounts.written === 10_002)
    const lines = await producer.getLogs(ref, { limit: 10_000 })
    expect(lines[9999]?.message).toBe('line 10000')
    expect(await producer.getLogs(ref, { after: lines[9999]?.id as string })).toMatchObject([
      {
        level: 'warn',
        message: '2000 lines were dropped here: they came faster than Postgres took them',
        data: { dropped: 2000 },
      },
    ])
    expect(messages(await producer.getLogs(later))).toEqual([
      '2 lines were dropped here: they came faster than Postgres took them',
    ])
    const after = await producer.enqueue(chatty, 1)
    await eventually('and logs go on', async () => (await producer.getLogs(after)).length === 1)
  })

  it('[S8] a stop does not wait for them for long, and counts what it leaves', async () => {
    const producer = deployment.producer()
    const worker = await startChatty()
    const held = await lockLogs()
    const ref = await producer.enqueue(chatty, 7)
    await producer.waitFor(ref)
    await worker.stop()
    expect(worker.logCounts).toMatchObject({ written: 0, dropped: { stop: 7 } })
    await held.release()
    expect(await producer.getLogs(ref)).toEqual([])
  })

  it('[S8] because Postgres refuses one line, the others are stored', async () => {
    await database.rows(`
      create function refuse() returns trigger language plpgsql as $$
      begin
        if new.message = 'line 5' then raise 'not this one' using errcode = '22P05'; end if;
        return new;
      end $$;
      create trigger refuse before insert on longshore.job_logs for each row execute function refuse()`)
    const producer = deployment.producer()
    const worker = await startChatty()
    try {
      const ref = await producer.enqueue(chatty, 20)
      await eventually('the others are there', async () => worker.logCounts.written === 19)
      expect(worker.logCounts.dropped.refused).toBe(1)
      const kept = messages(await producer.getLogs(ref))
      expect(kept).toHaveLength(19)
      expect(kept).not.toContain('line 5')
    } finally {
      await database.rows('drop function refuse cascade')
    }
  })

  it('[S8] lines that are sent again because a reply was lost are stored once; a stale run does not undo progress', async () => {
    const producer = deployment.producer()
    const { id } = await producer.enqueue(defineTask({ name: 'said' }), {}, { delay: '1h' })
    await database.rows('insert into longshore.past_workers (id) values (1000000)')
    await database.rows('insert into longshore.past_runs values ($1, 7, 1000000), ($1, 8, 1000000)', [id])
    const write = (lease: number, done: number) =>
      database.rows(
        `select longshore.write_logs(
           json_build_array(json_build_object('job', $1::uuid, 'lease', $2::int, 'attempt', 1, 'seq', 1, 'age', 5,
             'level', 'info', 'message', 'once')),
           json_build_array(json_build_object('job', $1::uuid, 'lease', $2::int, 'attempt', 1, 'done', $3::int)),
           1000000)`,
        [id, lease, done],
      )
    await write(8, 80)
    await write(8, 81)
    await write(7, 10)
    expect(messages(await producer.getLogs(id))).toEqual(['once', 'once'])
    expect(await producer.getProgress(id)).toMatchObject({ done: 81, total: null })
  })
})

describe('a worker process that is killed', () => {
  it('[S8] leaves the lines that were stored; those of the next run come behind them', async () => {
    const producer = deployment.producer({ tasks: [talk] })
    await startChatty() // leads the upkeep from the start
    const doomed = await startProcess({ lease: '2s' })
    const ref = await producer.enqueue(talk, 1)
    await eventually('it has said something', async () => (await producer.getLogs(ref)).length === 1)
    await doomed.kill()
    expect(await producer.getProgress(ref)).toMatchObject({ done: 1, total: 2 })
    const says = async (_: unknown, { log }: JobContext) => log('again')
    await deployment.worker({ handlers: [talk.handle(says)] })
    const seen: LogLine[] = []
    for await (const line of producer.followLogs(ref)) seen.push(line)
    expect(messages(seen)).toEqual(['begun', 'again'])
    expect(await producer.getLogs(ref)).toEqual(seen)
    expect(seen.map(line => line.attempt)).toEqual([1, 1]) // a rescue uses no attempt
  })
})

describe('logs and progress', () => {
  it('[S8] have partitions ahead, and are dropped by whole days with the history', async () => {
    for (const table of ['job_logs', 'job_progress'] as const) {
      expect(await partitions(table)).toHaveLength(16)
      await makeDay(database, '2020-01-01', table)
    }
    for (const day of ['2020-01-01', '2020-01-05']) {
      await database.rows(
        `insert into longshore.job_logs (job_id, lease_token, at, seq, day, attempt, level, message)
         values (gen_random_uuid(), 1, $1::date, 1, $1, 1, 'info', 'old')`,
        [day],
      )
      await database.rows(
        `insert into longshore.job_progress (job_id, lease_token, at, done, day, attempt)
         values (gen_random_uuid(), 1, $1::date, 1, $1, 1)`,
        [day],
      )
    }
    await startChatty()
    for (const table of ['job_logs', 'job_progress']) {
      await eventually('the old day is gone', async () => (await partitions(table)).length === 16)
      expect(await database.rows(`select from longshore.${table}`)).toEqual([])
    }
  })

  it('[S8] are found by an index, and progress is written in place', async () => {
    const producer = deployment.producer()
    const worker = await startChatty()
    const [ref] = await producer.enqueueMany(chatty, Array(400).fill(5))
    await eventually('all lines are there', async () => worker.logCounts.written === 2000)
    await database.rows('analyze longshore.job_logs, longshore.job_progress')
    const [today] = await database.rows<{ day: string }>(
      "select to_char(now() at time zone 'utc', 'YYYYMMDD') as day",
    )
    for (const [table, rest] of [
      ['job_logs', 'and (lease_token, seq) > (1, 0) order by lease_token, seq limit 10'],
      ['job_progress', ''],
    ]) {
      const plan = await database.rows(
        `explain select * from longshore.${table} where job_id = '${ref?.id}' ${rest}`,
      )
      const text = plan.map(row => row['QUERY PLAN']).join('\n')
      expect(text).toContain(`${table}_${today?.day}_pkey`)
    }
    const options = await database.rows(
      "select reloptions from pg_class where relname ~ '^job_progress_(default|\\d+)$' and not 'fillfactor=50' = any (coalesce(reloptions, '{}'))",
    )
    expect(options).toEqual([])
  })

  it('[S8] a handler that tells how far it is over and over writes it a few times', async () => {
    const task = defineTask({ name: 'counts' })
    const producer = deployment.producer()
    const mayReturn = gate()
    await deployment.worker({
      handlers: [
        task.handle(async (_, ctx) => {
          for (let n = 1; n <= 100_000; n++) ctx.progress(n, 100_000)
          await mayReturn.opened
        }),
      ],
    })
    await database.rows(`
      create sequence writes;
      create function count_writes() returns trigger language plpgsql as $$
      begin perform nextval('public.writes'); return new; end $$;
      create trigger count_writes before insert on longshore.job_progress for each row execute function count_writes()`)
    try {
      const ref = await producer.enqueue(task, 1)
      await eventually('it is there', async () => (await producer.getProgress(ref))?.done === 100_000)
      const [row] = await database.rows<{ writes: string }>('select last_value as writes from writes')
      expect(Number(row?.writes)).toBeLessThan(5)
      mayReturn.open()
      await producer.waitFor(ref)
    } finally {
      await database.rows('drop function count_writes cascade; drop sequence writes')
    }
  })
})
