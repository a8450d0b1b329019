/**
 * A run under faults: producers, relays and workers as processes of their own, both stores, and a seeded plan of what is done to
 * them. Then the faults stop, everything drains, and everything is checked. CI runs it for a minute, `npm run soak` for as long as told.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { audit, createProducer, type DoctorReport, doctor, type Producer } from '../../src/index.ts'
import { eventually } from '../support/signals.ts'
import { createCast, type TheCast } from './cast.ts'
import { dumpDatabase } from './dump-database.ts'
import {
  type CallLine,
  type EffectLine,
  type Evidence,
  type FaultLine,
  lineWriter,
  readLines,
} from './evidence.ts'
import { type Circumstances, createFaults, firstCircumstances } from './faults.ts'
import { type Cast, planFaults, quietMoments } from './plan.ts'
import type { ProduceOptions } from './produce.ts'
import type { RelayProcessOptions } from './relay.ts'
import { type Stage, setStage } from './stage.ts'
import { HAD } from './tasks.ts'
import { checkTotalQueue, type Find, type Finding, type Verdict } from './total-queue.ts'
import { type Growth, judgeGrowth, type Sample, takeSample } from './watch.ts'
import type { WorkOptions } from './work.ts'

export interface NemesisOptions {
  seed: number
  seconds: number
  /** Where the compiled scripts are, see build-scripts.ts. */
  scripts: string
  /** How many processes of each kind. Default: 4 workers, 2 relays, 3 producers. */
  size?: { workers: number; relays: number; producers: number }
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

const FULL_SIZE = { workers: 4, relays: 2, producers: 3 }
const USERS = 3
/** One relay keeps less in Redis than there is to do, so that windows move and lanes are left to Postgres. */
const SMALL = { laneWindow: 40, queueDepth: 8 }
const LEASE_MS = 4000
const LOOK_MS = 500
const RESUME_MS = 3000
const SAMPLE_MS = 5000
const TELL_MS = 30_000
const DRAIN_MS = 90_000

export async function runNemesis(options: NemesisOptions): Promise<NemesisReport> {
  const { seed, seconds, tell = () => undefined } = options
  const folder = mkdtempSync(join(tmpdir(), 'longshore-nemesis-'))
  for (const name of ['logs', 'journals', 'effects']) mkdirSync(join(folder, name))
  const roles = rolesOf(options)
  const plan = planFaults(seed, seconds * 1000, roles)
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
      samples = await watch.stop()
      drainMs = Math.round(performance.now() - since)
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
    await control.close()
    cast.endAll()
    await stage.close()
    if (!isKept) rmSync(folder, { recursive: true, force: true })
  }
}

function rolesOf({ size = FULL_SIZE, isLong = false }: NemesisOptions): Cast {
  const slots = (kind: string, count: number) => Array.from({ length: count }, (_, n) => `${kind}-${n}`)
  return {
    workers: slots('worker', size.workers),
    relays: slots('relay', size.relays),
    producers: slots('producer', size.producers),
    spared: isLong ? ['worker-0', 'relay-0', 'producer-0'] : [],
  }
}

/** Everybody takes their place. */
function enter(
  stage: Stage,
  cast: TheCast,
  roles: Cast,
  circumstances: Circumstances,
  seed: number,
  folder: string,
): void {
  const stores = (slot: string) => ({
    postgres: stage.link(slot, 'postgres').url,
    redis: stage.link(slot, 'redis').url,
  })
  const begin = (slot: string, script: string, make: (name: string) => object) =>
    cast.begin({
      slot,
      script: `test/nemesis/${script}`,
      options: make,
      clockOffsetMs: () => circumstances.clocks.get(slot) ?? 0,
    })
  for (const slot of roles.relays)
    begin(
      slot,
      'relay.ts',
      () => ({ ...stores(slot), ...(slot === roles.relays[0] ? SMALL : {}) }) satisfies RelayProcessOptions,
    )
  for (const slot of roles.workers)
    begin(
      slot,
      'work.ts',
      name =>
        ({
          name,
          ...stores(slot),
          lease: LEASE_MS,
          properties: circumstances.properties.get(slot) ?? {},
          limits: circumstances.limits,
          effectLog: join(folder, 'effects', `${name}.jsonl`),
        }) satisfies WorkOptions,
    )
  for (const [at, slot] of roles.producers.entries()) {
    let starts = 0
    begin(slot, 'produce.ts', name => {
      const { postgres, redis } = stores(slot)
      return {
        name,
        seed: seed + 1000 * at + starts++,
        postgres,
        // One of them needs Postgres only, as most do.
        ...(at === 0 ? {} : { redis }),
        journal: join(folder, 'journals', `${name}.jsonl`),
        users: USERS,
      } satisfies ProduceOptions
    })
  }
}

/** Tells producers how much there is to do, lets halted workflows go on, and takes samples. */
function startWatch(stage: Stage, cast: TheCast, control: Producer, tell: (line: string) => void) {
  const samples: Sample[] = []
  const since = performance.now()
  let isOver = false
  let lastSample = 0
  let lastTold = 0
  let lastResume = 0
  const look = async () => {
    const at = performance.now() - since
    const [row] = await stage.rows<{ n: number }>('select count(*)::int as n from longshore.jobs')
    for (const place of cast.places) place.order({ backlog: row?.n ?? 0 })
    if (at - lastResume > RESUME_MS) {
      lastResume = at
      await resumeHalted(stage, control)
    }
    if (at - lastSample > SAMPLE_MS) {
      lastSample = at
      samples.push(await takeSample(stage, at))
    }
    if (at - lastTold > TELL_MS) {
      lastTold = at
      const { unfinished, ended, outboxAgeMs, redisBytes } = samples.at(-1) ?? {}
      tell(
        `${Math.round(at / 1000)} s: ${ended} ended, ${unfinished} unfinished, outbox ${outboxAgeMs} ms, Redis ${redisBytes} bytes`,
      )
    }
  }
  const watching = (async () => {
    while (!isOver) {
      // A store may be away just now.
      await look().catch(() => undefined)
      await pause(LOOK_MS)
    }
  })()
  return {
    async stop() {
      isOver = true
      await watching
      return samples
    },
  }
}

async function resumeHalted(stage: Stage, control: Producer): Promise<void> {
  const halted = await stage.rows<{ key: string }>(
    'select key from longshore.workflows where halted_by is not null',
  )
  for (const { key } of halted) await control.resumeWorkflow(key)
}

/** The faults are over: producers end what they do and leave, then nothing may be left unfinished. */
async function settleDown(
  stage: Stage,
  cast: TheCast,
  roles: Cast,
  control: Producer,
  find: Find,
): Promise<void> {
  await Promise.all(cast.places.map(place => place.untilRunning()))
  await leaveAll(cast, roles.producers, { finish: true }, find)
  const isDrained = async () => {
    await resumeHalted(stage, control)
    const [left] = await stage.rows<{ jobs: boolean; groups: boolean; outbox: boolean }>(
      `select exists (select from longshore.jobs) as jobs, exists (select from longshore.outbox) as outbox,
         exists (select from longshore.groups where finished_at is null) as groups`,
    )
    return !left?.jobs && !left?.groups && !left?.outbox
  }
  await eventually('everything has drained', isDrained, DRAIN_MS).catch(async error => {
    const left = await stage.rows<{ id: string }>('select id from longshore.jobs order by id limit 10')
    find('it does not drain', 'everybody', (error as Error).message)
    for (const { id } of left) find('it does not drain', id, JSON.stringify(await control.explain(id)))
  })
}

async function leaveAll(
  cast: TheCast,
  slots: readonly string[],
  by: 'SIGTERM' | { finish: true },
  find: Find,
): Promise<void> {
  await Promise.all(
    slots.map(async slot => {
      const place = cast.place(slot)
      const how = await place.leave(by)
      if (how !== 0) find('a process did not leave in peace', place.name, String(how))
    }),
  )
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

/** Everything that longshore itself can tell of both stores, and the journal of every change of a job. */
async function checkStores(stage: Stage, find: Find): Promise<DoctorReport> {
  const db = {
    query: async (text: string, values?: unknown[]) => ({
      rows: await stage.rows<Record<string, unknown>>(text, values),
    }),
  }
  for (const { invariant, problem, jobId } of [...(await audit(db)), ...(await stage.journal.auditJournal())])
    find(`invariant ${invariant} does not hold`, jobId ?? '', problem)
  return askDoctor(stage, find)
}

async function askDoctor(stage: Stage, find: Find): Promise<DoctorReport> {
  const report = await doctor({ postgres: stage.postgres.url, redis: stage.redis.url })
  for (const { invariant, problem, jobId } of report.violations)
    find(`the doctor finds invariant ${invariant} violated`, jobId ?? '', problem)
  return report
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
