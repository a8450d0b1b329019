/** Q13: how many connections does a worker process hold, how much memory does an idle one, and how much WAL does a plain job write? */
import { setTimeout as pause } from 'node:timers/promises'
import { jobData, jobDataList } from '../../jobs/job-data.ts'
import { checkTallies } from '../../jobs/tally.ts'
import { keepInFlight } from '../../loads/in-flight.ts'
import { countConnections, residentMemory } from '../../measure/footprint.ts'
import type { Figure, Measurement } from '../../measure/measurement.ts'
import type { Setting } from '../../measure/setting.ts'
import { BULK } from '../../measure/sizes.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import { readWrites } from '../../measure/writes.ts'
import type { Scenario } from '../scenario.ts'

const connections = (name: string): Figure => ({ name, unit: 'connections', better: 'lower' })
const wal = (name: string): Figure => ({ name, unit: 'bytes', better: 'lower' })
const memory = (name: string): Figure => ({ name, unit: 'MB', better: 'lower' })

const FIGURES = {
  idle: connections('held while idle'),
  busy: { ...connections('held while busy'), isHeadline: true },
  single: wal('WAL: single enqueue'),
  bulk: wal('WAL: bulk enqueue'),
  run: { ...wal('WAL: claim and settle'), isHeadline: true },
  loaded: memory('memory, code loaded'),
  waiting: { ...memory('memory, idle worker'), isHeadline: true },
}

const WIDTH = 32
const LIMIT_MS = 60_000
const SIDES: Readonly<Record<string, string>> = {
  direct: 'longshore-direct',
  'through Redis': 'longshore',
  'graphile-worker': 'graphile-worker',
}

export const footprint: Scenario = {
  id: 'footprint',
  question: 'Q13 connections and memory of a worker process, WAL of a plain job',
  figures: Object.values(FIGURES),
  variants: Object.entries(SIDES).map(([name, peer]) => ({ name, peer, workload: {} })),
  async measure(setting) {
    const idle = await measureIdle(setting)
    const stored = await measureEnqueues(setting)
    const drained = await measureDrain(setting, stored.jobs)
    return { ...drained, figures: { ...idle, ...stored.figures, ...drained.figures } }
  },
}

async function measureIdle(setting: Setting): Promise<Record<string, number>> {
  const worker = setting.forkWorker(1, 1)
  await worker.loaded
  const loaded = residentMemory(worker.pid)
  worker.begin()
  await worker.ready
  await Promise.race([pause(setting.sizes.idleMs), worker.broken])
  const waiting = residentMemory(worker.pid)
  const held = countConnections(worker.pid, setting.surroundings.postgres)
  await worker.finish()
  return {
    ...(held === undefined ? {} : { [FIGURES.idle.name]: held }),
    ...(loaded === undefined ? {} : { [FIGURES.loaded.name]: loaded }),
    ...(waiting === undefined ? {} : { [FIGURES.waiting.name]: waiting }),
  }
}

/** No checkpoint from here to the end of the drain: the first change of a page after one writes the whole page. */
async function measureEnqueues(setting: Setting): Promise<{ jobs: number; figures: Record<string, number> }> {
  const each = setting.sizes.crowdJobs
  const producer = await setting.peer.openProducer()
  try {
    await setting.database.settle()
    const before = await readWrites(setting.database)
    await keepInFlight(
      WIDTH,
      i => i < each,
      i => producer.addOne(jobData(i)),
    )
    const between = await readWrites(setting.database)
    for (let first = each; first < 2 * each; first += BULK)
      await producer.addMany(jobDataList(first, Math.min(BULK, 2 * each - first)))
    const after = await readWrites(setting.database)
    return {
      jobs: 2 * each,
      figures: {
        [FIGURES.single.name]: (between.walBytes - before.walBytes) / each,
        [FIGURES.bulk.name]: (after.walBytes - between.walBytes) / each,
      },
    }
  } finally {
    await producer.close()
  }
}

async function measureDrain(setting: Setting, jobs: number): Promise<Measurement> {
  const worker = setting.forkWorker(jobs, jobs)
  await worker.loaded
  const stretch = await beginStretch(setting, [worker.pid])
  worker.begin()
  let most = 0
  const giveUpAt = performance.now() + LIMIT_MS
  while (worker.ran < jobs || (await setting.countUnfinished()) > 0) {
    if (performance.now() > giveUpAt)
      throw new Error(`${worker.ran} of ${jobs} jobs ran in ${LIMIT_MS / 1000} s`)
    most = Math.max(most, countConnections(worker.pid, setting.surroundings.postgres) ?? Number.NaN)
    await Promise.race([pause(10), worker.broken])
  }
  const { cores, seconds, writes } = await stretch.end()
  checkTallies(jobs, [await worker.finish()])
  const figures = {
    ...(Number.isNaN(most) ? {} : { [FIGURES.busy.name]: most }),
    [FIGURES.run.name]: writes.walBytes / jobs,
  }
  return { jobs, cores, seconds, writes, figures }
}
