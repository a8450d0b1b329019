/** Owns the text of a chart: horizontal bars with whiskers, as SVG that reads well on light and on dark ground. */
import type { Spread } from '../measure/statistics.ts'

export interface Bar {
  readonly label: string
  readonly spread: Spread
  /** What its colour says. */
  readonly kind: 'ours' | 'peer' | 'yardstick'
}

export interface Panel {
  readonly title: string
  /** For times: they differ by powers of ten. Otherwise the axis begins at 0. */
  readonly isLogarithmic: boolean
  readonly bars: readonly Bar[]
  format(value: number): string
}

const WIDTH = 860
const LEFT = 190
const PLOT = 410
const ROW = 26
const BAR = 14
const TOP = 44
const AXIS = 30
const GAP = 16

const STYLE = `
  .ground { fill: #ffffff } text { fill: #1f2328; font: 12px system-ui, sans-serif } .title { font-weight: 600; font-size: 14px }
  .tick { fill: #59636e } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328; stroke-width: 1.5 }
  .ours { fill: #0969da } .peer { fill: #afb8c1 } .yardstick { fill: #8fc79a }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .tick { fill: #9198a1 } .grid { stroke: #30363d } .whisker { stroke: #e6edf3 }
    .ours { fill: #4493f8 } .peer { fill: #57606a } .yardstick { fill: #2f6f43 }
  }`

export function drawChart(panels: readonly Panel[]): string {
  let y = 0
  const drawn = panels.map(panel => {
    const text = drawPanel(panel, y)
    y += heightOf(panel)
    return text
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" role="img">`,
    `<title>${escapeXml(panels.map(({ title }) => title).join('; '))}</title>`,
    `<style>${STYLE}\n</style>`,
    `<rect class="ground" width="${WIDTH}" height="${y}"/>`,
    ...drawn,
    '</svg>\n',
  ].join('\n')
}

const heightOf = ({ bars }: Panel) => TOP + bars.length * ROW + AXIS + GAP

function drawPanel(panel: Panel, y: number): string {
  const { ticks, place } = scaleOf(panel)
  const bottom = y + TOP + panel.bars.length * ROW
  return [
    `<text class="title" x="16" y="${y + 24}">${escapeXml(panel.title)}</text>`,
    ...ticks.map(tick => {
      const x = round(LEFT + place(tick) * PLOT)
      return `<line class="grid" x1="${x}" y1="${y + TOP - 4}" x2="${x}" y2="${bottom}"/><text class="tick" x="${x}" y="${bottom + 16}" text-anchor="middle">${escapeXml(panel.format(tick))}</text>`
    }),
    ...panel.bars.map((bar, i) => drawBar(panel, bar, place, y + TOP + i * ROW)),
  ].join('\n')
}

function drawBar(
  panel: Panel,
  { label, spread, kind }: Bar,
  place: (value: number) => number,
  y: number,
): string {
  const { median, min, max } = spread
  const at = (value: number) => round(LEFT + place(value) * PLOT)
  const middle = y + BAR / 2 + 2
  const range = min === max ? '' : ` (${panel.format(min)}–${panel.format(max)})`
  return [
    `<text x="${LEFT - 8}" y="${middle + 4}" text-anchor="end">${escapeXml(label)}</text>`,
    `<rect class="${kind}" x="${LEFT}" y="${y + 2}" width="${round(at(median) - LEFT)}" height="${BAR}" rx="2"/>`,
    ...(min === max
      ? []
      : [
          `<path class="whisker" fill="none" d="M${at(min)} ${middle}H${at(max)}M${at(min)} ${middle - 4}v8M${at(max)} ${middle - 4}v8"/>`,
        ]),
    `<text x="${round(Math.max(at(median), at(max)) + 8)}" y="${middle + 4}">${escapeXml(panel.format(median) + range)}</text>`,
  ].join('\n')
}

interface Scale {
  readonly ticks: readonly number[]
  /** From 0 at the left to 1 at the right. */
  place(value: number): number
}

function scaleOf({ bars, isLogarithmic }: Panel): Scale {
  const values = bars.flatMap(({ spread }) => [spread.min, spread.max])
  const most = Math.max(...values)
  return isLogarithmic ? powersOfTen(Math.min(...values), most) : fromZero(most)
}

function powersOfTen(least: number, most: number): Scale {
  const first = Math.floor(Math.log10(least) - 1e-9)
  const last = Math.max(first + 1, Math.ceil(Math.log10(most)))
  return {
    ticks: Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i)),
    place: value => Math.max(0, (Math.log10(value) - first) / (last - first)),
  }
}

/** About five ticks at round numbers. */
function fromZero(most: number): Scale {
  const rough = (most || 1) / 5
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = ([1, 2, 5, 10].find(factor => factor * power >= rough) ?? 10) * power
  const end = Math.ceil((most || 1) / step) * step
  return {
    ticks: Array.from({ length: Math.round(end / step) + 1 }, (_, i) => i * step),
    place: value => value / end,
  }
}

const round = (value: number) => Math.round(value * 10) / 10

const escapeXml = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
