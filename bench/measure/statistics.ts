/** Owns the few numbers that samples are boiled down to. */
export interface Spread {
  median: number
  min: number
  max: number
}

export function spreadOf(samples: readonly number[]): Spread {
  const sorted = [...samples].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  const median = sorted.length % 2 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
  return { median, min: sorted[0] ?? Number.NaN, max: sorted.at(-1) ?? Number.NaN }
}

/** The value that `share` of the samples do not exceed (nearest rank). */
export function quantile(samples: ArrayLike<number>, share: number): number {
  const sorted = Float64Array.from(samples).sort()
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}
