/**
 * P13: does a queue slow down while somebody's transaction stays open, so that no dead row can be removed? One quarter of the
 * time without it, three with it. Jobs come in bulk: at a steady rate, or as fast as they are run.
 */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { jobDataList } from '../../jobs/job-data.ts'
import { checkTallies } from '../../jobs/tally.ts'
import { figuresOfQuarters, QUARTER_FIGURES, type Quarter } from '../../loads/quarters.ts'
import { watchCpu } from '../../measure/cpu.ts'
import type { Setting } from '../../measure/setting.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import type { PeerProducer } from '../../peers/peer.ts'
import type { Scenario } from '../scenario.ts'

const BULK = 500
const STEADY_PER_SECOND = 10_000
/** At full speed so many jobs are kept waiting. */
const WAITING = 20_000
const MOST_PER_SECOND = 80_000
const WARM_MS = 3000
const LIMIT_MS = 60_000

interface Side {
  readonly peer: string
  /** None: as fast as jobs are run. */
  readonly perSecond?: number
  /** Of the time that a steady rate is given. */
  readonly share: number
}

const SIDES: Readonly<Record<string, Side>> = {
  'steady rate': { peer: 'longshore', perSecond: STEADY_PER_SECOND, share: 1 },
  'full speed': { peer: 'longshore', share: 1 / 12 },
  'graphile-worker, full speed': { peer: 'graphile-worker', share: 1 / 12 },
}

export const openTransaction: Scenario = {
  id: 'open-transaction',
  question: 'P13 a transaction held open for three of four minutes',
  figures: QUARTER_FIGURES,
  variants: Object.entries(SIDES).map(([name, { peer }]) => ({ name, peer, workload: {} })),
  async measure(setting) {
    const side = SIDES[setting.side]
    if (!side) throw new Error(`no side "${setting.side}"`)
    const producer = await setting.peer.openProducer()
    const idle = new pg.Client(setting.database.url)
    await idle.connect()
    try {
      return await measureWith(producer, idle, side, setting)
    } finally {
      await idle.end()
      await producer.close()
    }
  },
}

async function measureWith(producer: PeerProducer, idle: pg.Client, side: Side, setting: Setting) {
  const quarterMs = setting.sizes.quarterMs * side.share
  const most = ((side.perSecond ?? MOST_PER_SECOND) * (WARM_MS + 4 * quarterMs + 10_000)) / 1000
  const worker = setting.forkWorker(most, most)
  await worker.loaded
  worker.begin()
  await worker.ready

  let enqueued = 0
  let isOver = false
  const addBulk = async () => {
    const first = enqueued
    enqueued += BULK
    if (enqueued > most) throw new Error('more jobs than there is room to count')
    await producer.addMany(jobDataList(first, BULK))
  }
  const startedAt = performance.now()
  const isDue = () =>
    side.perSecond === undefined
      ? enqueued - worker.ran < WAITING
      : enqueued < ((performance.now() - startedAt) * side.perSecond) / 1000
  const lane = async () => {
    while (!isOver) await (isDue() ? addBulk() : Promise.race([pause(2), worker.broken]))
  }
  const lanes = Promise.all([lane(), lane()])
  lanes.catch(() => undefined) // told below

  await Promise.race([pause(WARM_MS), lanes])
  const stretch = await beginStretch(setting, [worker.pid])
  const quarters: Quarter[] = []
  for (let n = 1; n <= 4; n++) {
    const from = worker.ran
    const startAt = performance.now()
    const coresSince = watchCpu(setting.servers, [worker.pid])
    await Promise.race([pause(quarterMs), lanes])
    quarters.push({
      from,
      to: worker.ran,
      seconds: (performance.now() - startAt) / 1000,
      cores: coresSince(),
    })
    // A snapshot is taken by its first statement.
    if (n === 1) await idle.query('begin isolation level repeatable read; select count(*) from pg_class')
  }
  const { cores, seconds, writes } = await stretch.end()
  isOver = true
  await lanes
  await idle.query('rollback')

  const giveUpAt = performance.now() + LIMIT_MS
  while (worker.ran < enqueued && performance.now() < giveUpAt) await Promise.race([pause(20), worker.broken])
  const report = await worker.finish()
  checkTallies(enqueued, [report])
  const jobs = (quarters.at(-1)?.to ?? 0) - (quarters[0]?.from ?? 0)
  return { jobs, cores, seconds, writes, figures: figuresOfQuarters(quarters, report.latenciesUs) }
}
