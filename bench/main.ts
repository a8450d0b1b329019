/**
 * The bench: longshore beside its peers, beside itself or beside another checkout, on one machine, in one run.
 *
 * command/ reads flags · scenarios/ are the questions, in sets · loads/ put jobs through a peer · measure/ are the instruments ·
 * jobs/ are what is stored and counted · peers/ are the queues · processes/ builds and forks · stores/ are the servers ·
 * run/ is the order of a run · summary/ has medians, ratios and goals · report/ prints and writes · results/ are the records ·
 * beside/, sweep/, plans/ and profile/ are what else can be asked for.
 */
import { runBeside } from './beside/run-beside.ts'
import { type Flags, readFlags, USAGE } from './command/flags.ts'
import { knownPeer, OURS } from './peers/known-peers.ts'
import { writePlans } from './plans/write-plans.ts'
import { buildLongshore } from './processes/build-longshore.ts'
import { formatProfiles, formatStatements } from './profile/print-profile.ts'
import { formatRedis } from './profile/print-redis.ts'
import { fillDocs } from './report/fill-docs.ts'
import { formatResult, formatSummary, formatUnmeasured } from './report/print.ts'
import { describeMachine, type RunRecord, recordPeer } from './report/run-record.ts'
import { saveResults } from './report/save-results.ts'
import type { Bench } from './run/measure-side.ts'
import { type Result, runRounds } from './run/rounds.ts'
import { peersOf } from './run/sides.ts'
import type { Scenario } from './scenarios/scenario.ts'
import { scenarioSets } from './scenarios/sets.ts'
import { type Database, openDatabase } from './stores/database.ts'
import { openRedisServers } from './stores/redis-servers.ts'
import { summarize } from './summary/summary.ts'
import { runSweep } from './sweep/run-sweep.ts'

/** Progress goes to standard error: standard output holds the results. */
const isTerminal = process.stderr.isTTY
const say = (line: string) => process.stderr.write(isTerminal ? `\r\x1b[K${line}\n` : `${line}\n`)
const hint = (line: string) => isTerminal && process.stderr.write(`\r\x1b[K${line}`)

async function main(flags: Flags): Promise<void> {
  hint('building longshore and starting Postgres …')
  const longshore = await buildLongshore()
  process.once('SIGINT', () => process.exit(130)) // Postgres and the workers end with us
  const needsStatements = flags.scenarios.some(scenario => scenario.needsStatements)
  const database = await openDatabase(flags.profile ? 'all' : needsStatements ? 'top' : undefined)
  try {
    say(`${database.choice}; Node ${process.version}; ${describeMachine()}`)
    if (flags.isPlans) return await plans(flags, database, longshore)
    const peers = peersOf(flags.scenarios, flags.peers)
    const redis = await openRedisServers(peers.flatMap(peer => knownPeer(peer).redis ?? []))
    try {
      for (const choice of redis.choices) say(choice)
      for (const peer of peers) say(`${peer}: ${knownPeer(peer).title}; ${knownPeer(peer).durability}`)
      for (const { id, variants } of flags.scenarios) {
        if (variants)
          say(`${id}: variants beside each other, ${variants.map(({ name }) => name).join(' | ')}`)
      }
      const bench: Bench = { sizes: flags.sizes, database, redis, longshore }
      if (flags.beside) await runBeside(flags, flags.beside, bench, { say, hint })
      else if (flags.sweep !== undefined) await runSweep(flags, flags.sweep, bench, { say, hint })
      else await run(flags, bench, peers)
    } finally {
      await redis.stop()
    }
  } finally {
    await database.stop()
  }
}

async function plans({ sizes }: Flags, database: Database, longshore: string): Promise<void> {
  const open = await knownPeer(OURS).load()
  const { install } = await open({ postgres: database.url, longshore, load: 'backlog' })
  await writePlans({ database, sizes, install, say })
}

async function run(flags: Flags, bench: Bench, peers: readonly string[]): Promise<void> {
  const { database, redis } = bench
  const { scenarios, sizes, leftOut } = flags
  for (const part of leftOut) say(`left out: ${part}`)
  const startedAt = performance.now()
  const onResult = async (result: Result, scenario: Scenario, profiles: string | undefined) => {
    say(formatResult(result, scenario))
    if (!profiles) return
    console.log(`\n${formatProfiles(profiles, result.jobs)}\n`)
    if (database.hasStatements) console.log(`${await formatStatements(database, result.jobs)}\n`)
    console.log(formatRedis(profiles, result.jobs).join('\n'))
  }
  const { results, unmeasured } = await runRounds({
    ...bench,
    scenarios,
    peers: flags.peers,
    profile: flags.profile,
    onStart: (round, scenario, side) =>
      hint(`round ${round} of ${sizes.rounds}: ${scenario.question}, ${side} …`),
    onResult,
    onUnmeasured: one => say(formatUnmeasured(one)),
  })
  if (unmeasured.some(one => one.isOurs)) process.exitCode = 1
  const summary = summarize(scenarios, flags.peers, { results, unmeasured })
  const record: RunRecord = {
    command: ['npm run bench', ...(process.argv.length > 2 ? ['--', ...process.argv.slice(2)] : [])].join(
      ' ',
    ),
    at: new Date().toISOString(),
    tookSeconds: (performance.now() - startedAt) / 1000,
    machine: describeMachine(),
    node: process.version,
    postgres: database.choice,
    redis: redis.choices,
    leftOut,
    peers: await Promise.all(peers.map(recordPeer)),
    sizes,
    summary,
    results,
  }
  if (flags.isSaved) {
    say(`saved ${saveResults(flags.name, record, scenarios)}`)
    if (flags.name in scenarioSets) fillDocs()
  }
  if (flags.isJson) console.log(JSON.stringify(record, null, 2))
  else if (!flags.profile) console.log(`\n${formatSummary(summary, scenarios, flags.peers)}`)
}

try {
  const flags = readFlags(process.argv.slice(2))
  if (flags?.isDocs) fillDocs()
  else if (flags) await main(flags)
  else console.log(USAGE)
} catch (error) {
  say(`bench failed: ${(error as Error).message}`)
  process.exitCode = 1
}
