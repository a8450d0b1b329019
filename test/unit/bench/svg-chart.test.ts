/** The text of charts: what a reader must find in it. */
import { describe, expect, it } from 'vitest'
import { drawChart, type Panel } from '../../../bench/report/svg-chart.ts'

const rates: Panel = {
  title: 'drain: jobs/s',
  isLogarithmic: false,
  bars: [
    { label: 'longshore', spread: { median: 40_000, min: 30_000, max: 50_000 }, kind: 'ours' },
    { label: 'a & b <c>', spread: { median: 20_000, min: 20_000, max: 20_000 }, kind: 'peer' },
  ],
  format: value => value.toLocaleString('en-US'),
}
const times: Panel = {
  title: 'start, ms',
  isLogarithmic: true,
  bars: [
    { label: 'longshore', spread: { median: 2, min: 2, max: 2 }, kind: 'ours' },
    { label: 'slow', spread: { median: 8000, min: 8000, max: 8000 }, kind: 'peer' },
  ],
  format: value => String(value),
}

const ticksOf = (svg: string) => [...svg.matchAll(/class="tick"[^>]*>([^<]*)</g)].map(([, text]) => text)
const widthsOf = (svg: string) =>
  [...svg.matchAll(/class="(?:ours|peer|yardstick)" [^>]*width="([\d.]+)"/g)].map(([, width]) =>
    Number(width),
  )

describe('a chart', () => {
  it('has an axis of round numbers that begins at 0', () => {
    expect(ticksOf(drawChart([rates]))).toEqual(['0', '10,000', '20,000', '30,000', '40,000', '50,000'])
  })

  it('draws bars as long as their medians', () => {
    const [first = 0, second = 1] = widthsOf(drawChart([rates]))
    expect(first / second).toBeCloseTo(2)
  })

  it('draws times on powers of ten', () => {
    const svg = drawChart([times])
    expect(ticksOf(svg)).toEqual(['1', '10', '100', '1000', '10000'])
    const [fast = 0, slow = 0] = widthsOf(svg)
    expect(slow - fast).toBeGreaterThan(fast)
  })

  it('shows the spread as a whisker and in words, unless there is none', () => {
    const svg = drawChart([rates])
    expect(svg).toContain('40,000 (30,000–50,000)')
    expect(svg.match(/class="whisker"/g)).toHaveLength(1)
    expect(svg).toContain('>20,000</text>')
  })

  it('escapes what has a meaning in XML', () => {
    expect(drawChart([rates])).toContain('a &amp; b &lt;c&gt;')
  })

  it('has colours for light and for dark ground', () => {
    expect(drawChart([rates])).toContain('prefers-color-scheme: dark')
  })

  it('stacks its panels', () => {
    const heightOf = (svg: string) => Number(/viewBox="0 0 \d+ ([\d.]+)"/.exec(svg)?.[1])
    expect(heightOf(drawChart([rates, times]))).toBe(
      heightOf(drawChart([rates])) + heightOf(drawChart([times])),
    )
  })

  it('can hold nothing but zeros', () => {
    const zero: Panel = {
      ...rates,
      bars: [{ label: 'none', spread: { median: 0, min: 0, max: 0 }, kind: 'ours' }],
    }
    expect(drawChart([zero])).not.toContain('NaN')
  })
})
