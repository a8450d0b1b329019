/** Owns the count of jobs by their numbers: which ran, which ran twice. */

/** In a worker: one byte for each job. */
export interface Tally {
  /** Notes that a job ran; false when it had run before. */
  note(seq: number): boolean
  readonly ran: number
  readonly duplicates: number
  readonly seen: Uint8Array
}

export function createTally(total: number): Tally {
  const seen = new Uint8Array(total)
  let ran = 0
  let duplicates = 0
  return {
    note(seq) {
      if (seen[seq] === 1) {
        duplicates++
        return false
      }
      seen[seq] = 1
      ran++
      return true
    },
    get ran() {
      return ran
    },
    get duplicates() {
      return duplicates
    },
    seen,
  }
}

/** Throws unless every job ran, in one worker or another, and none did twice. */
export function checkTallies(total: number, reports: readonly Pick<Tally, 'seen' | 'duplicates'>[]): void {
  const all = createTally(total)
  let duplicates = 0
  for (const report of reports) {
    duplicates += report.duplicates
    for (let seq = 0; seq < total; seq++) if (report.seen[seq] === 1) all.note(seq)
  }
  duplicates += all.duplicates
  if (all.ran === total && duplicates === 0) return
  throw new Error(`${all.ran} of ${total} jobs ran, ${duplicates} ran again`)
}
