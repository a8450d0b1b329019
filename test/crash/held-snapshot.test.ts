import { expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { noops } from '../support/process-tasks.ts'
import { parsePrometheus } from '../support/prometheus-text.ts'
import { eventually } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const [noop] = noops
if (!noop) throw new Error('there is no task')
const ROUNDS = 3
const BULK = 2000
const SINGLES = 5
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

/** Pages of the table of jobs and of its indexes that this connection has asked for so far. */
const FETCHED = `(select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint from pg_class c where c.oid = 'longshore.jobs'::regclass
    or c.oid in (select i.indexrelid from pg_index i where i.indrelid = 'longshore.jobs'::regclass))`
/** Each call of a worker notes how many of them it took. */
const counted = [
  {
    name: 'settle_and_claim',
    point: 'start',
    insertion: `perform set_config('test.pages', ${FETCHED}::text, true);`,
  },
  {
    name: 'settle_and_claim',
    point: 'done',
    insertion: `insert into journal.costs values (${FETCHED} - current_setting('test.pages')::bigint);`,
  },
]

it('[S9] a transaction is held open while jobs come and go (xmin): claims slow down little, and a metric tells', async () => {
  await database.rows('create table journal.costs (pages bigint not null)')
  await database.rows('grant usage on schema journal to public') // functions run as their owner
  const producer = deployment.producer({ tasks: [noop] })
  await startProcess()
  const holder = await database.connect()
  const relay = await deployment.relay()
  const figure = async (name: string) =>
    parsePrometheus((await relay.prometheus()).text).figure(`longshore_deployment_${name}`)

  const costs: { bulk: number; single: number }[] = []
  await weakened(database, counted, async () => {
    const pages = async (what: 'sum' | 'max') => {
      const [row] = await database.rows<{ n: number }>(`select ${what}(pages)::int as n from journal.costs`)
      await database.rows('truncate journal.costs')
      return row?.n ?? 0
    }
    await holder.query('begin isolation level repeatable read; select')
    for (const _ of numbers(ROUNDS)) {
      await producer.enqueueMany(noop, numbers(BULK))
      await deployment.drained()
      const bulk = (await pages('sum')) / BULK
      for (const n of numbers(SINGLES)) await producer.waitFor(await producer.enqueue(noop, n))
      costs.push({ bulk, single: await pages('max') })
    }
  })
  const [first, last] = [costs[0], costs.at(-1)]
  if (!first || !last) throw new Error('there was no round')
  // A job of many costs the same, whatever has died before it: large claims read past the dead once.
  expect(last.bulk).toBeLessThan(first.bulk * 1.5)
  // So does a lone one, alone: 0.024 pages for each that has died, and none where Redis names it.
  const died = (ROUNDS - 1) * (BULK + SINGLES)
  expect(last.single).toBeLessThan(first.single + (deployment.redis ? 20 : 0.05 * died))

  const [row] = await database.rows<{ age: number }>(
    'select extract(epoch from clock_timestamp() - xact_start)::float8 as age from pg_stat_activity where pid = $1',
    [holder.backendPid],
  )
  expect(await figure('oldest_transaction_seconds')).toBeGreaterThanOrEqual(row?.age ?? Number.NaN)
  await eventually('the dead are counted', async () => (await figure('dead_rows')) > died, 30_000)
  await holder.query('commit')
  await eventually(
    'nothing is open any more',
    async () => (await figure('oldest_transaction_seconds')) < (row?.age ?? 0),
  )
  await deployment.atRest()
  expect(await deployment.runs()).toHaveLength(ROUNDS * (BULK + SINGLES))
})
