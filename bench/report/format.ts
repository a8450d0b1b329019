/** Owns how a number looks, on a terminal as in a report. */
import type { Figure } from '../measure/measurement.ts'
import type { Spread } from '../measure/statistics.ts'

const ONE_DIGIT: readonly Figure['unit'][] = ['%', 'µs', '/s', 'MB', '/1,000 jobs']

export function formatFigure(value: number, unit: Figure['unit']): string {
  if (unit === 'ms') return value.toFixed(value < 1 ? 3 : value < 100 ? 2 : 0)
  if (unit === '×') return value.toFixed(2)
  if (ONE_DIGIT.includes(unit)) return value.toFixed(1)
  return Math.round(value).toLocaleString('en-US')
}

export function formatSpread(spread: Spread, format: (value: number) => string): string {
  const { median, min, max, interval } = spread
  if (interval) return `${format(median)} [${format(interval.from)}–${format(interval.to)}]`
  return min === max ? format(median) : `${format(median)} (${format(min)}–${format(max)})`
}

export const formatRatio = (ratio: Spread | undefined): string =>
  ratio
    ? formatSpread(ratio, value => value.toFixed(value < 0.1 ? 4 : value < 2 ? 3 : value < 10 ? 2 : 1))
    : ''
