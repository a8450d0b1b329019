/**
 * Owns a load beside a transaction that stays open, so that no dead row can be removed: a quarter of the time without it, three
 * quarters with it. Jobs come in bulk, at a steady rate or as fast as they are run, to one worker process.
 */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { jobDataList } from '../jobs/job-data.ts'
import { checkTallies } from '../jobs/tally.ts'
import { watchCpu } from '../measure/cpu.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { PeerProducer } from '../peers/peer.ts'
import { figuresOfQuarters, type Quarter } from './quarters.ts'

/** At full speed so many jobs are kept waiting. */
const WAITING = 20_000
const MOST_PER_SECOND = 80_000
const WARM_MS = 3000
const LIMIT_MS = 60_000

export interface HeldLoad {
  readonly quarterMs: number
  /** Jobs in one call. */
  readonly bulk: number
  /** None: as fast as jobs are run. */
  readonly perSecond?: number
  /** Default true: otherwise the same load without the transaction. */
  readonly isHeld?: boolean
  /** Called at the beginning and at the end of each quarter. */
  readonly onBorder?: () => Promise<void>
}

export async function loadBesideTransaction(setting: Setting, load: HeldLoad): Promise<Measurement> {
  const producer = await setting.peer.openProducer()
  const idle = new pg.Client(setting.database.url)
  await idle.connect()
  try {
    return await loadWith(producer, idle, setting, load)
  } finally {
    await idle.end()
    await producer.close()
  }
}

async function loadWith(
  producer: PeerProducer,
  idle: pg.Client,
  setting: Setting,
  { quarterMs, bulk, perSecond, isHeld = true, onBorder }: HeldLoad,
) {
  const most = Math.ceil(((perSecond ?? MOST_PER_SECOND) * (WARM_MS + 4 * quarterMs + 10_000)) / 1000)
  const worker = setting.forkWorker(most, most)
  await worker.loaded
  worker.begin()
  await worker.ready

  let enqueued = 0
  let isOver = false
  const addBulk = async () => {
    const first = enqueued
    enqueued += bulk
    if (enqueued > most) throw new Error('more jobs than there is room to count')
    await producer.addMany(jobDataList(first, bulk))
  }
  const startedAt = performance.now()
  const isDue = () =>
    perSecond === undefined
      ? enqueued - worker.ran < WAITING
      : enqueued < ((performance.now() - startedAt) * perSecond) / 1000
  const lane = async () => {
    while (!isOver) await (isDue() ? addBulk() : Promise.race([pause(2), worker.broken]))
  }
  const lanes = Promise.all([lane(), lane()])
  lanes.catch(() => undefined) // told below

  await Promise.race([pause(WARM_MS), lanes])
  const stretch = await beginStretch(setting, [worker.pid])
  const quarters: Quarter[] = []
  await onBorder?.()
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
    await onBorder?.()
    // A snapshot is taken by its first statement.
    if (n === 1 && isHeld)
      await idle.query('begin isolation level repeatable read; select count(*) from pg_class')
  }
  const { cores, seconds, writes } = await stretch.end()
  isOver = true
  await lanes
  if (isHeld) await idle.query('rollback')

  const giveUpAt = performance.now() + LIMIT_MS
  while (worker.ran < enqueued && performance.now() < giveUpAt) await Promise.race([pause(20), worker.broken])
  const report = await worker.finish()
  checkTallies(enqueued, [report])
  const jobs = (quarters.at(-1)?.to ?? 0) - (quarters[0]?.from ?? 0)
  return { jobs, cores, seconds, writes, figures: figuresOfQuarters(quarters, report.latenciesUs) }
}
