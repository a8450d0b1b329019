/**
 * Owns what happens once before the first call is served: the database is checked, tracing and the client of Redis are loaded, tasks
 * are registered. A failure is not remembered, so a later call starts it anew: running `migrate` meanwhile heals it.
 */
import { LongshoreError } from '../job/errors.ts'
import type { Task } from '../job/task.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import type { Pool } from '../postgres/connect.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import { readDeployment } from '../postgres/relay-reads.ts'
import type { patient } from '../postgres/unavailable.ts'
import { loadTracing } from '../runtime/tracing.ts'
import type { JobHints } from './hint-jobs.ts'

export interface Readiness {
  readonly isClosed: boolean
  /** From now on calls are refused. */
  close(): void
  /** Resolves when the database has been checked; refuses a closed producer. */
  whenChecked(): Promise<void>
  /** Resolves when the producer can do its work; undefined when it can already. */
  whenReady(): Promise<void> | undefined
}

export function createReadiness(options: {
  pool: Pool
  schema: string
  tasks: readonly Task[]
  hints: JobHints
  patiently: ReturnType<typeof patient>
}): Readiness {
  const { pool, schema, tasks, hints, patiently } = options
  let checked: Promise<void> | undefined
  let ready: Promise<void> | undefined
  let isReady = false
  let isClosed = false

  const refuseClosed = () => {
    if (isClosed) throw new LongshoreError('PRODUCER_CLOSED', 'this producer is closed: make a new one')
  }
  // Calls share a try; each call decides for itself how often a new one is made.
  const check = () => {
    checked ??= checkDatabase(pool, schema).catch(error => {
      checked = undefined
      throw error
    })
    return checked
  }
  const start = async () => {
    await check()
    await loadTracing()
    if (tasks.length > 0) await registerTasks(pool, schema, tasks)
    await hints.open(() => readDeployment(pool, schema))
    isReady = true
  }
  loadTracing() // now: a statement in a caller's transaction does not wait for it

  return {
    get isClosed() {
      return isClosed
    },
    close() {
      isClosed = true
    },
    whenChecked() {
      refuseClosed()
      return patiently(check)
    },
    whenReady() {
      refuseClosed()
      if (isReady) return ready
      return patiently(() => {
        ready ??= start().catch(error => {
          ready = undefined
          throw error
        })
        return ready
      })
    },
  }
}
