/** Owns a run of the sweep: prints what each candidate reached, and keeps it. */
import type { Flags } from '../command/flags.ts'
import { knownPeer } from '../peers/known-peers.ts'
import { formatFigure, formatSpread } from '../report/format.ts'
import { formatTable } from '../report/print.ts'
import { describeMachine } from '../report/run-record.ts'
import { saveJson } from '../report/save-results.ts'
import type { Bench } from '../run/measure-side.ts'
import { COUNTED, describe, type Swept, sweep } from './sweep.ts'

export async function runSweep(
  { isSaved, sizes: { rounds } }: Flags,
  peer: string,
  bench: Bench,
  { say, hint }: { say: (line: string) => void; hint: (line: string) => void },
): Promise<void> {
  const swept = await sweep(bench, peer, hint)
  console.log(await formatSweep(peer, swept))
  const at = new Date().toISOString()
  const record = { at, machine: describeMachine(), rounds, counted: COUNTED, swept }
  if (isSaved) say(`saved ${saveJson(`sweep-${peer}`, record)}`)
}

async function formatSweep(peer: string, swept: readonly Swept[]): Promise<string> {
  const used = describe((await knownPeer(peer).tuning?.())?.used ?? {})
  return formatTable({
    head: ['settings', 'jobs/s', ''],
    rows: swept.map(({ settings, rate }) => [
      describe(settings),
      formatSpread(rate, value => formatFigure(value, 'jobs/s')),
      describe(settings) === used ? 'used' : '',
    ]),
  })
}
