/** A duty of the upkeep that fails: the others go on, and every process can tell. */
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { createWorker, defineTask } from '../../src/index.ts'
import { openPool } from '../../src/postgres/connect.ts'
import { readOverview } from '../../src/postgres/read-overview.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeDay } from '../support/make-day.ts'
import { useServed } from '../support/scrape.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const serve = useServed()
const task = defineTask<unknown>({ name: 'any' })
const handlers = [task.handle(() => undefined)]

const logged = () => {
  const lines: { level: number; msg: string }[] = []
  const logger = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  return { logger, saying: (text: string) => lines.filter(({ msg }) => msg.includes(text)) }
}
const noted = () => database.rows<{ name: string; error: string }>('select name, error from longshore.duties')
/** Each call is counted, and fails. */
const breakGroups = () =>
  database.rows(`
    alter function longshore.sweep_groups(uuid, int, text, bytea) rename to sweep_groups_well;
    create sequence public.tries;
    create function longshore.sweep_groups(uuid, int, text, bytea) returns uuid language plpgsql security definer as $$
    begin perform nextval('public.tries'); raise 'sweep_groups is broken'; end $$`)
const tries = async () =>
  Number((await database.rows<{ n: string }>('select last_value as n from public.tries'))[0]?.n)
const mendGroups = () =>
  database.rows(`
    drop function longshore.sweep_groups(uuid, int, text, bytea);
    drop sequence public.tries;
    alter function longshore.sweep_groups_well(uuid, int, text, bytea) rename to sweep_groups`)

describe('a duty that fails', () => {
  it('[X12] is told once in the log, in health, in the overview and as a metric; the others go on, and it is well again', async () => {
    const { logger, saying } = logged()
    const worker = await deployment.worker({ handlers, logger })
    const relay = await serve(['relay'], { DATABASE_URL: database.urlOf('relay') })
    await breakGroups()
    try {
      await eventually('Postgres knows', async () => (await noted()).length === 1)
      expect((await noted())[0]).toMatchObject({
        name: 'groups',
        error: expect.stringContaining('sweep_groups'),
      })
      expect(await worker.health()).toMatchObject({
        isReady: true,
        upkeep: expect.stringMatching(/^failing: groups for \d+ s: .*sweep_groups/),
      })
      const { status, body } = await relay.ask('/readyz')
      expect(status).toBe(200)
      expect(body['upkeep']).toMatch(/^failing: groups for/)
      const pool = openPool(database.url, 1, () => undefined)
      const { upkeep } = await readOverview(pool, 'longshore')
      await pool.end()
      expect(upkeep.failing).toMatchObject([{ duty: 'groups', forMs: expect.any(Number) }])
      await eventually('it is a metric', async () => {
        const text = await (await fetch(relay.url)).text()
        return /longshore_deployment_upkeep_failing_seconds (?!0\n)[\d.]+/.test(text)
      })
      // The relay leads by now, and does what is due.
      const producer = deployment.producer({ tasks: [task] })
      const ref = await producer.enqueue(task, 1, { delay: 400 })
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    } finally {
      await mendGroups()
    }
    await eventually('it is well', async () => (await noted()).length === 0)
    expect(await worker.health()).toMatchObject({ upkeep: 'well' })
    expect(saying('the duty "groups" fails').length).toBeLessThanOrEqual(1)
  })

  it('[X12] is told of by the leader: once when it begins, and when it is over', async () => {
    const { logger, saying } = logged()
    await deployment.worker({ handlers, logger })
    await breakGroups()
    try {
      await eventually('it is told', async () => saying('the duty "groups" fails').length > 0)
      await eventually('Postgres knows', async () => (await noted()).length === 1)
      const [since] = await database.rows('select failing_since from longshore.duties')
      const before = await tries()
      await eventually('it has been tried again', async () => (await tries()) > before + 1)
      expect(await database.rows('select failing_since from longshore.duties')).toEqual([since])
    } finally {
      await mendGroups()
    }
    await eventually('its end is told', async () => saying('the duty "groups" is done again').length > 0)
    expect(saying('the duty "groups" fails')).toMatchObject([{ level: 40 }])
    expect(saying('others lead')).toEqual([])
  })

  it('[X12] that the leader before has noted is well when the next one has done it; one that is no more is forgotten', async () => {
    await database.rows(
      "insert into longshore.duties (name, error) values ('rescue', 'it broke'), ('astrology', 'it rained')",
    )
    await deployment.worker({ handlers })
    await eventually('both are gone', async () => (await noted()).length === 0)
  })

  it('[X12] history that is behind is told of with who is in the way, while jobs go on', async () => {
    await makeDay(database, '2020-01-01')
    const reader = await database.connect()
    await reader.query("set application_name = 'a long report'")
    await reader.query('begin')
    await reader.query('select count(*) from longshore.finished_jobs')
    const worker = createWorker({ postgres: database.urlOf('worker'), handlers })
    await worker.start()
    try {
      await eventually('it is told', async () =>
        /^failing: history for \d+ s: the oldest day should have gone \d+ days ago: connection \d+ \(a long report\) holds/.test(
          (await worker.health()).upkeep,
        ),
      )
      const producer = deployment.producer({ tasks: [task] })
      const ref = await producer.enqueue(task, 1)
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
      await reader.query('rollback')
      await eventually('it is well', async () => (await worker.health()).upkeep === 'well', 30_000)
      expect(await database.rows("select from pg_class where relname ~ '^finished_jobs_20200101'")).toEqual(
        [],
      )
    } finally {
      await worker.stop()
    }
  })
})
