/**
 * The verb *doctor*: audits every invariant on a live system, over both stores, without stopping anybody; and repairs, where
 * that is asked for, what is safe to repair.
 */
import { checkWhole } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import type { Violation } from '../postgres/audit.ts'
import type { Pool } from '../postgres/connect.ts'
import { type ExamineOptions, examine } from '../postgres/examine.ts'
import { createLockWatch } from '../postgres/held-locks.ts'
import { checkDeployment, type DeploymentOptions, withPool } from '../postgres/once.ts'
import type { RepairKind } from '../postgres/questions.ts'
import { type ConcernBounds, readConcerns, readTables, type TableSize } from '../postgres/read-health.ts'
import { type Repaired, repair } from '../postgres/repair.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import { askAnew, auditQueues } from './audit-dispatch.ts'

export interface DoctorOptions extends DeploymentOptions {
  /** Where Redis is, if jobs go through it: then what it holds is audited as well. */
  redis?: RedisConfig
  /** Repair what is safe to repair. Default false: nothing is changed. */
  repair?: boolean
  /** How late rescue, relay, due jobs and the end of groups may be. Default `'10s'`. */
  grace?: Duration
  /** Rows that are looked at in one statement. Default 2000. */
  pageSize?: number
  /** Rest after each page. Default `'10ms'`. */
  pause?: Duration
  /** How often something must be seen, a quarter of a second apart, before it is told. Default 3. */
  looks?: number
  /** So many dead rows of a table are worth a warning if they are more than twice the live ones. Default a million. */
  maxDeadRows?: number
  /** A transaction that has been open for longer is worth a warning. Default `'10m'`. */
  maxTransactionAge?: Duration
  /** Told as it goes on: what is being looked at, and how many rows of it have been. */
  onProgress?: (progress: { what: string; rows: number }) => void
}

export interface DoctorFinding extends Violation {
  /** What was done about it, or what there is to do. */
  remedy: string
}

export interface DoctorReport {
  /** Nothing is wrong, or all of it has been repaired. */
  isHealthy: boolean
  /** What is wrong and was not repaired, at most 1000 findings. */
  violations: DoctorFinding[]
  /** How many there are. */
  violationCount: number
  /** What was repaired, at most 1000 findings. */
  repaired: DoctorFinding[]
  repairedCount: number
  /** What breaks no promise, and should be looked at. */
  warnings: string[]
  /** How many rows were looked at. */
  looked: Record<string, number>
  /** The tables of the installation, the largest first. */
  tables: TableSize[]
}

type Settings = {
  redis: RedisConfig | undefined
  onProgress: DoctorOptions['onProgress'] | undefined
} & Pick<ExamineOptions, 'graceMs' | 'pageSize' | 'pauseMs' | 'looks'> &
  Pick<ConcernBounds, 'maxDeadRows' | 'maxTransactionAgeMs'>

const MOST = 2 ** 31 - 1
const KNOWN = Object.keys({
  redis: true,
  repair: true,
  grace: true,
  pageSize: true,
  pause: true,
  looks: true,
  maxDeadRows: true,
  maxTransactionAge: true,
  onProgress: true,
} satisfies Record<Exclude<keyof DoctorOptions, keyof DeploymentOptions>, true>)
const MOST_TOLD = 1000
/** What one repair frees may show the next damage. */
const MOST_ROUNDS = 4
const WITH_REPAIR = 'run longshore doctor --repair'
const BUILT_ANEW = { isDone: true, said: 'the relay builds the queue in Redis anew' }
const UNHEARD = {
  isDone: false,
  said: 'no relay has heard it: start `longshore relay --redis-url …`; a relay that leads builds the queue anew',
}

/** Look at everything; see `DoctorReport`. */
export async function doctor(options: DoctorOptions): Promise<DoctorReport> {
  checkDeployment('doctor', options, KNOWN)
  const settings = readSettings(options)
  return withPool(options, async (pool, schema) => {
    const repaired: DoctorFinding[] = []
    let round = await lookOnce(pool, schema, settings, options.repair === true)
    const first = round
    for (let n = 1; round.repaired.length > 0; n++) {
      repaired.push(...round.repaired)
      round = await lookOnce(pool, schema, settings, n < MOST_ROUNDS)
    }
    const tables = await readTables(pool, schema)
    const concerns = await readConcerns(pool, schema, { ...settings, tables })
    const locks = await createLockWatch(pool, schema)()
    return {
      isHealthy: round.left.length === 0,
      violations: round.left.slice(0, MOST_TOLD),
      violationCount: round.left.length,
      repaired: repaired.slice(0, MOST_TOLD),
      repairedCount: repaired.length,
      warnings: [...round.warnings, ...concerns, ...locks],
      looked: first.looked,
      tables,
    }
  })
}

function readSettings(options: DoctorOptions): Settings {
  const { grace = '10s', pageSize = 2000, pause = '10ms', looks = 3 } = options
  const { maxDeadRows = 1_000_000, maxTransactionAge = '10m' } = options
  return {
    redis: options.redis,
    onProgress: options.onProgress,
    graceMs: toTimerMs(grace, 'grace'),
    pageSize: checkWhole('CONFIG_INVALID', 'pageSize', pageSize, 1, MOST),
    pauseMs: toTimerMs(pause, 'pause'),
    looks: checkWhole('CONFIG_INVALID', 'looks', looks, 1, MOST),
    maxDeadRows: checkWhole('CONFIG_INVALID', 'maxDeadRows', maxDeadRows, 0, MOST),
    maxTransactionAgeMs: toTimerMs(maxTransactionAge, 'maxTransactionAge'),
  }
}

interface Round {
  left: DoctorFinding[]
  repaired: DoctorFinding[]
  warnings: string[]
  looked: Record<string, number>
}

async function lookOnce(pool: Pool, schema: string, settings: Settings, isToRepair: boolean): Promise<Round> {
  const round: Round = { left: [], repaired: [], warnings: [], looked: {} }
  // Several findings may be about one thing.
  const done = new Map<string, Promise<Repaired>>()

  const treat = async (violation: Violation, key: string, mend: () => Promise<Repaired>) => {
    if (!isToRepair) {
      round.left.push({ ...violation, remedy: WITH_REPAIR })
      return
    }
    const treatment = done.get(key) ?? mend()
    done.set(key, treatment)
    const { isDone, said } = await treatment
    if (isDone) round.repaired.push({ ...violation, remedy: said })
    else round.left.push({ ...violation, remedy: said })
  }
  const treatRow = (violation: Violation, kind: RepairKind | 'redis', subject: string) =>
    treat(violation, `${kind} ${subject}`, () => repair(pool, schema, kind, subject))

  const examining: ExamineOptions = {
    graceMs: settings.graceMs,
    pageSize: settings.pageSize,
    pauseMs: settings.pauseMs,
    looks: settings.looks,
    onPage(what, rows) {
      round.looked[what] = (round.looked[what] ?? 0) + rows
      settings.onProgress?.({ what, rows: round.looked[what] })
    },
    async onFinding({ subject, ...violation }, question) {
      if (question.repair) await treatRow(violation, question.repair, subject)
      else round.left.push({ ...violation, remedy: question.advice ?? '' })
    },
    onUnanswered({ invariant }, why) {
      round.warnings.push(`invariant ${invariant} is not wholly known: ${why}`)
    },
  }
  await examine(pool, schema, examining)

  const { rows } = await pool.query(inSchema(schema, 'select dispatch from longshore.settings'))
  if (rows[0]?.['dispatch'] !== 'redis') return round
  if (settings.redis === undefined) {
    round.warnings.push('jobs go through Redis, which was not looked at: pass --redis-url, or `redis`')
    return round
  }
  settings.onProgress?.({ what: 'Redis', rows: 0 })
  const { redis } = settings
  for (const { queue, ...violation } of await auditQueues(pool, { redis, schema })) {
    if (violation.jobId && violation.invariant !== 12) await treatRow(violation, 'redis', violation.jobId)
    else
      await treat(violation, `queue ${queue}`, async () =>
        (await askAnew(pool, schema, redis, queue)) ? BUILT_ANEW : UNHEARD,
      )
  }
  return round
}
