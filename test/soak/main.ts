/**
 * `npm run soak -- --minutes 60 --seed 7`: the run under faults of `test/nemesis`, for as long as told. Fails if anything is lost, comes from
 * nowhere, runs twice without a reason or grows; then it says where everything lies that is needed to see why.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runNemesis } from '../nemesis/run.ts'
import { buildScripts } from '../support/build-scripts.ts'
import { writeDocs } from './write-docs.ts'

// Faults are made on purpose; what is logged about them would only hide what is found.
process.env['LONGSHORE_LOG_LEVEL'] ??= 'silent'

const SCRIPTS = ['produce', 'relay', 'work'].map(name => `test/nemesis/${name}.ts`)
/** From here on the memory of processes can be judged. */
const LONG_MINUTES = 3

const USAGE = 'usage: npm run soak -- [--minutes n] [--seed n] [--report file] [--keep] [--docs]'

const values = readFlags()
if (values.docs) writeDocs()
else await soak()

async function soak(): Promise<void> {
  const minutes = Number(values.minutes)
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31))
  if (!(minutes > 0)) misused(`--minutes must be a number above 0; got ${values.minutes}`)
  if (!Number.isInteger(seed)) misused(`--seed must be a whole number; got ${values.seed}`)
  const tell = (line: string) => console.log(`soak: ${line}`)
  tell(`${minutes} minutes, seed ${seed}`)

  // Under node_modules, because nothing else looks there; not where tests keep theirs.
  const scripts = resolve(`node_modules/.longshore-soak-${process.pid}`)
  process.once('exit', () => rmSync(scripts, { recursive: true, force: true }))
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))
  await buildScripts(scripts, SCRIPTS)
  const { folder, ...report } = await runNemesis({
    seed,
    seconds: minutes * 60,
    scripts,
    isLong: minutes >= LONG_MINUTES,
    isKept: values.keep,
    tell,
  })
  if (values.report) writeFileSync(values.report, `${JSON.stringify(report, null, 2)}\n`)
  console.log(JSON.stringify({ ...report, findings: report.findings.slice(0, 20) }, null, 1))
  if (values.keep || report.findings.length > 0) tell(`all that there is lies in ${folder}`)
  if (report.findings.length === 0) return
  tell(`${report.findings.length} findings`)
  tell(`repeat it with: npm run soak -- --minutes ${minutes} --seed ${seed}`)
  process.exitCode = 1
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        minutes: { type: 'string', default: '5' },
        seed: { type: 'string' },
        /** Where to leave the report, whatever it says. */
        report: { type: 'string' },
        /** Leave everything behind, whatever is found. */
        keep: { type: 'boolean', default: false },
        /** Only write the figures of docs/soak.md anew. */
        docs: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    return misused((error as Error).message)
  }
}

function misused(why: string): never {
  console.error(`soak: ${why}\n${USAGE}`)
  process.exit(2)
}
