/** Owns rows in columns: as wide as what is in them, and never wider than the terminal. */
import { padded, toPlain, widthOf } from './terminal-text.ts'

export interface Column<Row> {
  title: string
  value: (row: Row) => string
  align?: 'left' | 'right'
  /** Left out on terminals with fewer columns. */
  from?: number
  /** Gives way when there is no room: for names of users. */
  isElastic?: boolean
}

const GAP = 2
const LEAST = 4

/** The titles, then a line for each row, none wider than `width`. */
export function tableLines<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number,
): string[] {
  const shown = columns.filter(({ from = 0 }) => width >= from)
  const cells = rows.map(row => shown.map(column => toPlain(column.value(row))))
  const natural = shown.map(({ title }, at) =>
    Math.max(title.length, ...cells.map(line => widthOf(line[at] ?? ''))),
  )
  const widths = squeeze(shown, natural, width - GAP * (shown.length - 1))
  const line = (texts: readonly string[]) =>
    padded(
      texts.map((text, at) => padded(text, widths[at] ?? 0, shown[at]?.align)).join(' '.repeat(GAP)),
      width,
    ).trimEnd()
  return [line(shown.map(({ title }) => title)), ...cells.map(line)]
}

/** The widest elastic columns give way first, down to a few columns each. */
function squeeze<Row>(columns: readonly Column<Row>[], natural: readonly number[], room: number): number[] {
  const widths = [...natural]
  let over = widths.reduce((sum, width) => sum + width, 0) - room
  while (over > 0) {
    const elastic = columns.flatMap(({ isElastic }, at) =>
      isElastic && (widths[at] ?? 0) > LEAST ? [at] : [],
    )
    if (elastic.length === 0) break
    const widest = elastic.reduce((best, at) => ((widths[at] ?? 0) > (widths[best] ?? 0) ? at : best))
    widths[widest] = (widths[widest] ?? 0) - 1
    over--
  }
  return widths
}
