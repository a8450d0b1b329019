/** Owns which errors are of an outage of Postgres, and how a process tells of that. */
import type { Logger } from '../runtime/logger.ts'
import { createOutage, type Told } from '../runtime/outage.ts'
import { isAway } from './transient-error.ts'

/** It is there, and has ended a session that took too long or did nothing. */
const ENDED = new Set(['25P03', '25P04', '57P05'])

function isOutage(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.cause instanceof Error) return isOutage(error.cause)
  return isAway(error) && !ENDED.has(String((error as { code?: unknown }).code))
}

/** `meanwhile`: what happens without it. */
export const tellOfPostgres = (logger: Logger, meanwhile: string): Told => ({
  outage: createOutage(logger, `Postgres cannot be reached: ${meanwhile}`, 'Postgres is back'),
  isOf: isOutage,
})
