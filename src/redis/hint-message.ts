/**
 * Owns the text by which a producer tells the relay of jobs that it has made ready: `1 <queue> <id> <lane> <score> …`. It is input,
 * since whoever may hint may publish anything: what is not exactly this is no hint. It carries no lease token: a producer tells
 * of jobs before their first run.
 */
import { isJobId, type JobId } from '../job/job-id.ts'
import type { ReadyJob } from '../job/ready-job.ts'

export type HintedJob = Pick<ReadyJob, 'id' | 'lane' | 'score'>

/** More than this is load, and the relay is awake anyway. */
export const MOST_HINTED = 100

/** Raise it when a relay of before would misread what a producer of now writes. */
const VERSION = '1'
/** A queue's name is that long at most when it is encoded, and so is each job. */
const MOST_QUEUE = 3000
const MOST_JOB = 70
const MOST_LANE = 2 ** 31 - 1

export function writeHint(queue: string, jobs: readonly HintedJob[]): string {
  return [
    VERSION,
    encodeURIComponent(queue),
    ...jobs.flatMap(job => [job.id, String(job.lane), job.score]),
  ].join(' ')
}

export function readHint(text: string): { queue: string; jobs: HintedJob[] } | undefined {
  if (text.length > MOST_QUEUE + MOST_HINTED * MOST_JOB) return undefined
  const [version, encoded = '', ...parts] = text.split(' ')
  const queue = decoded(encoded)
  if (version !== VERSION || queue === undefined || parts.length === 0) return undefined
  if (parts.length % 3 !== 0 || parts.length > 3 * MOST_HINTED) return undefined
  const jobs: HintedJob[] = []
  for (let at = 0; at < parts.length; at += 3) {
    const [id = '', lane = '', score = ''] = parts.slice(at, at + 3)
    if (!isJobId(id) || !isWhole(lane, MOST_LANE) || !isWhole(score, Number.MAX_SAFE_INTEGER))
      return undefined
    jobs.push({ id: id as JobId, lane: Number(lane), score })
  }
  return { queue, jobs }
}

const isWhole = (text: string, most: number) => /^(0|[1-9]\d{0,15})$/.test(text) && Number(text) <= most

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
