/**
 * Owns what is said on the channels in Redis, and who may be believed: nobody. A message that does not fit is no message, and one
 * that does is only a reason to look.
 */
import { isJobId, type JobId } from '../job/job-id.ts'

/** Integers of Postgres have ten digits at most. */
const MOST_NUMBER = 2_147_483_647
/** More lanes than a script names in one call. */
const MOST_TEXT = 100_000

/** On the `low` channel. To the relay: these lanes are to be read on in; or this generation is broken, and is to begin anew. */
export type ToRelay = { root: string; lanes: number[] } | { root: string; anew: string }

const LOW = /^(\S+) (\d{1,10}(?:,\d{1,10})*)$/
const ANEW = /^(\S+) anew (\S{1,100})$/

export function parseLow(text: string): ToRelay | undefined {
  if (text.length > MOST_TEXT) return undefined
  const [, broken, generation] = ANEW.exec(text) ?? []
  if (broken && generation) return { root: broken, anew: generation }
  const [, root, list] = LOW.exec(text) ?? []
  if (!root || !list) return undefined
  const lanes = list.split(',').map(Number)
  return lanes.every(lane => lane <= MOST_NUMBER) ? { root, lanes } : undefined
}

export const sayAnew = (root: string, generation: string): string => `${root} anew ${generation}`

/** On the `beat` channel: the relay leads, and this is what the queue holds. */
export function parseBeat(text: string): { generation: string; queue: string } | undefined {
  const [, generation, queue] = /^(\d{1,16}-[0-9a-f]{6}) (.+)$/s.exec(text) ?? []
  return generation && queue ? { generation, queue } : undefined
}

/** A job that a bell tells of. */
export interface Told {
  generation: string
  id: JobId
  lane: number
  leaseToken: string
}

/** On a worker's channel. Most bells tell nothing. */
export function parseBell(text: string): Told | undefined {
  const [, generation, id = '', lane, leaseToken] =
    /^(\S{1,100}) (\S{36}) (\d{1,10}) (\d{1,16})$/.exec(text) ?? []
  if (!generation || !leaseToken || !isJobId(id) || Number(lane) > MOST_NUMBER) return undefined
  if (!Number.isSafeInteger(Number(leaseToken))) return undefined
  return { generation, id, lane: Number(lane), leaseToken }
}
