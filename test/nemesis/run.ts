/**
 * A run under faults: producers, relays and workers as processes of their own, both stores, and a seeded plan of what is done to
 * them. Then the faults stop, everything drains, and everything is checked. CI runs it for a minute, `npm run soak` for as long as told.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { createProducer } from '../../src/index.ts'
import { createCast } from './cast.ts'
import { askDoctor, checkStores } from './check-stores.ts'
import { dumpDatabase } from './dump-database.ts'
import { enter, FULL_SIZE, rolesOf, type Size } from './enter.ts'
import {
  type CallLine,
  type EffectLine,
  type Evidence,
  type FaultLine,
  lineWriter,
  readLines,
} from './evidence.ts'
import { createFaults, firstCircumstances } from './faults.ts'
import { type Growth, judgeGrowth } from './growth.ts'
import { planFaults, quietMoments } from './plan.ts'
import { leaveAll, settleDown } from './settle-down.ts'
import { type Stage, setStage } from './stage.ts'
import { HAD } from './tasks.ts'
import { checkTotalQueue, type Finding, type Verdict } from './total-queue.ts'
import { type Sample, startWatch } from './watch.ts'

export interface NemesisOptions {
  seed: number
  seconds: number
  /** Where the compiled scripts are, see build-scripts.ts. */
  scripts: string
  /** How many processes of each kind. Default: 4 workers, 2 relays, 3 producers. */
  size?: Size
  /** Some processes are never killed, so that their memory can be watched. */
  isLong?: boolean
  /** Leave the folder behind, whatever is found. */
  isKept?: boolean
  /** Plays it, from the first process to the last job: for those who weaken something meanwhile. */
  around?: (stage: Stage, play: () => Promise<void>) => Promise<void>
  tell?: (line: string) => void
}

export interface NemesisReport {
  seed: number
  seconds: number
  /** How long it took to drain after the last fault. */
  drainMs: number
  counts: Verdict['counts']
  /** By kind: done, and missed because nobody was there. */
  faults: Record<string, { done: number; missed: number }>
  processes: number
  growth: Growth[]
  longestOutboxAgeMs: number
  findings: Finding[]
  /** Where everything lies that was found out, if there are findings. */
  folder: string
}

export async function runNemesis(options: NemesisOptions): Promise<NemesisReport> {
  const { seed, seconds, tell = () => undefined } = options
  const folder = mkdtempSync(join(tmpdir(), 'longshore-nemesis-'))
  for (const name of ['logs', 'journals', 'effects']) mkdirSync(join(folder, name))
  const roles = rolesOf(options.size ?? FULL_SIZE, options.isLong ?? false)
  const plan = planFaults(seed, seconds * 1000, roles)
  tell(`what happens is written to ${folder}`)
  writeFileSync(join(folder, 'plan.json'), JSON.stringify({ seed, seconds, plan }, null, 1))

  const stage = await setStage([...roles.workers, ...roles.relays, ...roles.producers])
  const findings: Finding[] = []
  const find = (what: string, who: string, detail = '') => findings.push({ what, who, detail })
  const cast = createCast({
    scripts: options.scripts,
    logs: join(folder, 'logs'),
    onCrash: (name, how) => find('a process ended by itself', name, how),
  })
  const control = createProducer({ postgres: stage.postgres.url })
  let isKept = true
  try {
    const faults: FaultLine[] = []
    const writeFault = lineWriter<FaultLine>(join(folder, 'faults.jsonl'))
    let samples: Sample[] = []
    let drainMs = 0
    const play = async () => {
      const own = new Map<string, Record<string, string>>(
        roles.workers.map((slot, at) => [slot, { ...HAD[HAD.length - 1 - at] }]),
      )
      const circumstances = firstCircumstances(own)
      enter(stage, cast, roles, circumstances, seed, folder)
      await Promise.all(cast.places.map(place => place.untilRunning()))
      const watch = startWatch(stage, cast, control, tell)
      try {
        const playing = createFaults(stage, cast, circumstances, line => {
          faults.push(line)
          writeFault(line)
        }).play(plan)
        const checkups = quietMoments(seconds * 1000).map(async at => {
          await pause(at)
          const { isHealthy } = await askDoctor(stage, find)
          tell(`the doctor finds ${isHealthy ? 'nothing wrong' : 'something'} while all goes on`)
        })
        await Promise.all([playing, ...checkups, pause(seconds * 1000)])
        tell(`${faults.length} faults; now everything drains`)
        const since = performance.now()
        await settleDown(stage, cast, roles, control, find)
        drainMs = Math.round(performance.now() - since)
      } finally {
        samples = await watch.stop()
      }
    }
    await (options.around?.(stage, play) ?? play())

    const evidence = await gather(stage, folder, faults)
    const verdict = checkTotalQueue(evidence)
    findings.push(...verdict.findings)
    const checked = await checkStores(stage, find)
    const { compared, grown } = judgeGrowth(samples, cast.places)
    for (const { what, before, after, most } of grown)
      find('it grows', what, `from ${before} to ${after}, ${most} at most`)
    await leaveAll(cast, [...roles.relays, ...roles.workers], 'SIGTERM', find)

    const report: NemesisReport = {
      seed,
      seconds,
      drainMs,
      counts: verdict.counts,
      faults: countFaults(faults),
      processes: cast.places.reduce((sum, { memory }) => sum + memory.size, 0),
      growth: compared,
      longestOutboxAgeMs: Math.max(0, ...samples.map(({ outboxAgeMs }) => outboxAgeMs)),
      findings,
      folder,
    }
    isKept = findings.length > 0 || options.isKept === true
    if (isKept) {
      const write = (name: string, content: unknown) =>
        writeFileSync(join(folder, name), JSON.stringify(content, null, 1))
      write('report.json', report)
      write('doctor.json', checked)
      write('samples.json', samples)
      await dumpDatabase(stage, folder)
    }
    return report
  } finally {
    // Whatever happened: nobody outlives the run.
    cast.endAll()
    await control.close().catch(error => tell(String(error)))
    await stage.close()
    if (!isKept) rmSync(folder, { recursive: true, force: true })
  }
}

/** The evidence of all processes, in the order of time within each. */
async function gather(stage: Stage, folder: string, faults: FaultLine[]): Promise<Evidence> {
  const all = <Line>(name: string) =>
    readdirSync(join(folder, name)).flatMap(file => readLines<Line>(join(folder, name, file)))
  return {
    calls: all<CallLine>('journals'),
    effects: all<EffectLine>('effects'),
    faults,
    ...(await stage.remember()),
  }
}

function countFaults(faults: readonly FaultLine[]): NemesisReport['faults'] {
  const counts: NemesisReport['faults'] = {}
  for (const { kind, missed } of faults) {
    const count = counts[kind] ?? { done: 0, missed: 0 }
    counts[kind] = count
    if (missed === undefined) count.done++
    else count.missed++
  }
  return counts
}
