/** Owns how a process that can do without Redis tells that it has to: once for each reason, and again while that lasts. */
import { messageOf } from '../job/stored-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { namingRights } from './scripts.ts'

const AGAIN_MS = 60_000

/** `meanwhile`: what happens without it. */
export function tellOfRedis(logger: Logger, meanwhile: string): (error: unknown) => void {
  const toldAt = new Map<string, number>()
  return error => {
    const err = namingRights(error)
    const now = performance.now()
    for (const [reason, at] of toldAt) if (now - at > AGAIN_MS) toldAt.delete(reason)
    const reason = messageOf(err)
    const isNews = !toldAt.has(reason)
    if (isNews) toldAt.set(reason, now)
    logger[isNews ? 'warn' : 'debug']({ err }, `Redis cannot be used: ${meanwhile}`)
  }
}
