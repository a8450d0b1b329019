/** Owns the few numbers that samples are boiled down to. */
export interface Spread {
  median: number
  min: number
  max: number
  /** Of the median, where there are enough samples to be sure of one. */
  interval?: { from: number; to: number }
}

/**
 * The interval of a median that assumes nothing about how samples are spread: each sample lies above the true median with a
 * chance of one half (the sign test), so the k-th least and the k-th greatest bound it.
 */
export interface Interval {
  readonly median: number
  readonly from: number
  readonly to: number
  /** How surely the true median lies between them: with few samples less than was asked for. */
  readonly confidence: number
}

export const CONFIDENCE = 0.95

/** The narrowest that holds with `CONFIDENCE`: from the least to the greatest where there are too few samples for that. */
export function signInterval(samples: readonly number[]): Interval {
  const sorted = [...samples].sort((a, b) => a - b)
  const n = sorted.length
  let outside = 0
  let k = 0
  // Both tails: fewer than k + 1 of n samples on one side of the true median.
  for (let chance = 0.5 ** n; k < n / 2; k++) {
    if (outside + 2 * chance > 1 - CONFIDENCE) break
    outside += 2 * chance
    chance *= (n - k) / (k + 1)
  }
  const at = Math.max(0, k - 1)
  return {
    median: medianOf(sorted),
    from: sorted[at] ?? Number.NaN,
    to: sorted[n - 1 - at] ?? Number.NaN,
    confidence: Math.max(0, 1 - (k === 0 ? 2 * 0.5 ** n : outside)),
  }
}

export function spreadOf(samples: readonly number[]): Spread {
  const { median, from, to, confidence } = signInterval(samples)
  return {
    median,
    min: Math.min(...samples),
    max: Math.max(...samples),
    ...(confidence >= CONFIDENCE ? { interval: { from, to } } : {}),
  }
}

function medianOf(sorted: readonly number[]): number {
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
}

/** The value that `share` of the samples do not exceed (nearest rank). */
export function quantile(samples: ArrayLike<number>, share: number): number {
  const sorted = Float64Array.from(samples).sort()
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}
