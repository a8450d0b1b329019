/**
 * The floor: the least that is fronted by Redis and durable in Postgres, a yardstick for what longshore could reach here.
 * It is no queue: no retries, no leases, no recovery. Jobs are inserted in batches and their ids pushed to a Redis list;
 * a worker pops ids, claims them by an update and marks what ran as done by another.
 */
import { Redis } from 'ioredis'
import pg from 'pg'
import type { JobData } from '../jobs/job-data.ts'
import { createBatches } from './batches.ts'
import { type OpenPeer, redisOf } from './peer.ts'

const READY = 'floor:ready'
const INSERT_LANES = 2
const INSERT_MOST = 500
const CLAIM_LANES = 2
const CLAIM_MOST = 500
const DONE_LANES = 1
const DONE_MOST = 1000
const WAIT_SECONDS = 2

const INSTALL = `
  create schema floor;
  create table floor.jobs (
    id bigint primary key, state smallint not null default 0, attempts smallint not null default 0,
    payload jsonb not null, created_at timestamptz not null default now(), started_at timestamptz, finished_at timestamptz, worker int
  ) with (fillfactor = 60);`
const INSERT = {
  name: 'insert',
  text: 'insert into floor.jobs (id, payload) select * from unnest($1::bigint[], $2::jsonb[])',
}
const CLAIM = {
  name: 'claim',
  text: `update floor.jobs set state = 1, started_at = now(), attempts = attempts + 1, worker = $2
    where id = any($1::bigint[]) and state = 0 returning id, payload`,
}
const DONE = {
  name: 'done',
  text: 'update floor.jobs set state = 2, finished_at = now() where id = any($1::bigint[]) and state = 1',
}

interface Waiting {
  data: JobData
  resolve(): void
  reject(error: unknown): void
}

function openPool(connectionString: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString, max })
  pool.on('error', error => pool.ending || console.error('floor, pool:', error.message))
  return pool
}

export const openFloor: OpenPeer = async surroundings => {
  const { postgres } = surroundings
  const redisUrl = redisOf(surroundings)
  return {
    async install() {
      const pool = openPool(postgres, 1)
      await pool.query(INSTALL)
      await pool.end()
    },
    async openProducer() {
      const pool = openPool(postgres, INSERT_LANES)
      const redis = new Redis(redisUrl)
      let lastId = 0 // there is one producer at a time
      const store = async (list: readonly JobData[]) => {
        const ids = list.map(() => ++lastId)
        await pool.query({ ...INSERT, values: [ids, list.map(data => JSON.stringify(data))] })
        await redis.rpush(READY, ...ids)
      }
      const add = createBatches<Waiting>(INSERT_LANES, INSERT_MOST, batch =>
        store(batch.map(({ data }) => data)).then(
          () => batch.forEach(({ resolve }) => void resolve()),
          error => batch.forEach(({ reject }) => void reject(error)),
        ),
      )
      return {
        addOne: data => new Promise<void>((resolve, reject) => add({ data, resolve, reject })),
        addMany: store,
        async close() {
          await pool.end()
          redis.disconnect()
        },
      }
    },
    async startWorker(onJob, number) {
      const pool = openPool(postgres, CLAIM_LANES + DONE_LANES)
      const connections = Array.from({ length: CLAIM_LANES }, () => new Redis(redisUrl))
      let isStopping = false
      const tell = (error: Error) => isStopping || console.error('floor, worker:', error.message)
      const finish = createBatches<string>(DONE_LANES, DONE_MOST, ids =>
        pool.query({ ...DONE, values: [ids] }).catch(tell),
      )
      const popAndRun = async (redis: Redis) => {
        while (!isStopping) {
          const ids =
            (await redis.lpop(READY, CLAIM_MOST)) ?? (await redis.blpop(READY, WAIT_SECONDS))?.slice(1)
          if (!ids) continue
          const { rows } = await pool.query<{ id: string; payload: JobData }>({
            ...CLAIM,
            values: [ids, number],
          })
          for (const { id, payload } of rows) {
            onJob(payload)
            finish(id)
          }
        }
      }
      const lanes = connections.map(redis => popAndRun(redis).catch(tell))
      return {
        async stop() {
          isStopping = true
          for (const redis of connections) redis.disconnect()
          await Promise.all(lanes)
          await pool.end()
        },
      }
    },
    countUnfinished: 'select count(*)::int as n from floor.jobs where state < 2',
  }
}
