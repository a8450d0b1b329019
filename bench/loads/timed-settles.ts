/** Owns the timing of settles: connections that each settle some jobs and claim the next ones, at a steady pace, as workers do. */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { storeNumberedJobs } from '../jobs/numbered-jobs.ts'
import type { Database } from '../stores/database.ts'

const CONNECTIONS = 4
const BATCH = 5
const PAUSE_MS = 5
const REFILL = 50_000
/** Until connections have planned their statements. */
const WARM_MS = 2000

const CALL = 'select ids, lease_tokens from longshore.settle_and_claim($1, $2, $3, null, null, $4)'

export interface TimedSettles {
  /** How long each call took, from the client's side. */
  end(): Promise<number[]>
}

export async function beginSettles(database: Database): Promise<TimedSettles> {
  const timesMs: number[] = []
  let isOn = true
  let filling: Promise<void> | undefined
  const refill = () => {
    filling ??= storeNumberedJobs(database, REFILL).finally(() => {
      filling = undefined
    })
    return filling
  }
  await refill()
  const [worker] = await database.query(`
    insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at)
    values ('timed', '{default}', '{noop}', '{default}', '{c:}', now() + interval '1 day') returning id`)

  const settle = async () => {
    const client = new pg.Client(database.url)
    await client.connect()
    try {
      for (let ids: string[] = [], tokens: string[] = []; isOn; await pause(PAUSE_MS)) {
        const from = performance.now()
        const { rows } = await client.query({
          name: 'settle',
          text: CALL,
          values: [worker?.['id'], ids, tokens, BATCH],
        })
        // A call that settles nothing is no settle.
        if (ids.length > 0) timesMs.push(performance.now() - from)
        const claimed = rows[0] as { ids: string | null; lease_tokens: string | null } | undefined
        ids = claimed?.ids?.split(',') ?? []
        tokens = (claimed?.lease_tokens?.split(',') ?? []).flatMap(run => {
          const [token = '', count = '1'] = run.split('*')
          return Array<string>(Number(count)).fill(token)
        })
        if (ids.length === 0) await refill()
      }
    } finally {
      await client.end()
    }
  }
  const settling = Promise.all(Array.from({ length: CONNECTIONS }, settle))
  await Promise.race([pause(WARM_MS), settling])
  timesMs.length = 0
  return {
    async end() {
      isOn = false
      await settling
      return timesMs
    },
  }
}
