/** Owns a run of two checkouts beside each other: builds the other, measures in pairs, prints and keeps the comparison. */
import { execFileSync } from 'node:child_process'
import { resolve } from 'node:path'
import type { Flags } from '../command/flags.ts'
import { buildLongshore } from '../processes/build-longshore.ts'
import { formatTable } from '../report/print.ts'
import { describeMachine } from '../report/run-record.ts'
import { saveJson } from '../report/save-results.ts'
import type { Bench } from '../run/measure-side.ts'
import { type Comparison, compare, comparisonTable } from './compare.ts'
import { type BesidePair, runPairs } from './run-pairs.ts'

const HOW_TO_READ =
  'Medians, and the median of the ratios within the pairs with its interval (sign test). "Worse" and "better": the whole interval lies on that side of 1, with a confidence of 95 % (from 6 pairs on).'

export async function runBeside(
  { scenarios, peers, isJson, isSaved, name }: Flags,
  { checkout, pairs }: NonNullable<Flags['beside']>,
  bench: Bench,
  { say, hint }: { say: (line: string) => void; hint: (line: string) => void },
): Promise<void> {
  const other = resolve(checkout)
  hint(`building ${other} …`)
  const there = await buildLongshore(other)
  const commits = { here: describeCheckout('.'), there: describeCheckout(other) }
  say(`here: ${commits.here}; there: ${commits.there}`)
  const done = await runPairs({
    bench,
    folders: { here: bench.longshore, there: there },
    scenarios,
    peers,
    pairs,
    onStart: hint,
    onPair: pair => say(formatPair(pair, compare(scenarios, [pair]))),
  })
  const comparisons = compare(scenarios, done)
  const record = {
    at: new Date().toISOString(),
    machine: describeMachine(),
    postgres: bench.database.choice,
    commits,
    pairs,
    comparisons,
    results: done,
  }
  if (isSaved) say(`saved ${saveJson(name, record)}`)
  if (isJson) console.log(JSON.stringify(record, null, 2))
  else console.log(`\n${formatTable(comparisonTable(comparisons))}\n\n${HOW_TO_READ}`)
}

const formatPair = ({ pair, scenario, side }: BesidePair, comparisons: readonly Comparison[]): string =>
  `${String(pair).padStart(2)}  ${scenario} ${side}, here : there  ${comparisons.map(({ figure, ratio }) => `${figure.name} ${ratio.median.toFixed(3)}`).join('  ')}`

/** Its commit; "-dirty" where files differ from it. */
const describeCheckout = (folder: string): string =>
  execFileSync('git', ['-C', folder, 'describe', '--always', '--dirty'], { encoding: 'utf8' }).trim()
