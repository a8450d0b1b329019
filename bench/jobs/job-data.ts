/** Owns what the measured jobs carry: about 100 bytes of JSON, the same for every peer. */
import { nowUs } from './clock.ts'

export interface JobData {
  /** Each job is counted by its number. */
  seq: number
  /** When enqueue was called, see `nowUs`. */
  t: number
  tenant: string
  kind: string
  note: string
}

export const jobData = (seq: number): JobData => ({
  seq,
  t: nowUs(),
  tenant: 'acme-emea-01',
  kind: 'noop',
  note: 'xxxxxxxxxxxxxxxxxxxxxxxx',
})

/** Jobs numbered from `first` on. */
export const jobDataList = (first: number, count: number): JobData[] =>
  Array.from({ length: count }, (_, i) => jobData(first + i))
