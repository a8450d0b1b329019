/** The bench: longshore beside its peers, or beside itself, on one machine, in one run. Flags are in `flags.ts`. */
import { availableParallelism, cpus } from 'node:os'
import { buildLongshore } from './build-longshore.ts'
import { type Database, openDatabase } from './database.ts'
import { type Flags, readFlags, USAGE } from './flags.ts'
import { knownPeer, OURS } from './peers/known-peers.ts'
import { writePlans } from './plans/write-plans.ts'
import { formatResult, formatSummary, formatUnmeasured } from './print.ts'
import { formatProfiles, formatStatements } from './profile/print-profile.ts'
import { openRedis, type RedisUnderTest } from './redis.ts'
import { type Result, runRounds } from './rounds.ts'
import { saveResults } from './save-results.ts'
import type { Scenario } from './scenario.ts'
import { peersOf } from './sides.ts'
import { summarize } from './summary.ts'

/** Progress goes to standard error: standard output holds the results. */
const isTerminal = process.stderr.isTTY
const say = (line: string) => process.stderr.write(isTerminal ? `\r\x1b[K${line}\n` : `${line}\n`)
const hint = (line: string) => isTerminal && process.stderr.write(`\r\x1b[K${line}`)

async function main(flags: Flags): Promise<void> {
  hint('building longshore and starting Postgres …')
  const build = await buildLongshore()
  process.once('SIGINT', () => {
    build.remove()
    process.exit(130) // Postgres and the workers end with us
  })
  try {
    const database = await openDatabase({ withStatements: flags.profile !== undefined })
    try {
      say(`${database.choice}; Node ${process.version}; ${availableParallelism()} cores, ${cpus()[0]?.model}`)
      if (flags.isPlans) return await plans(flags, database, build.folder)
      const peers = peersOf(flags.scenarios, flags.peers)
      const redis = peers.some(peer => knownPeer(peer).needs.includes('redis'))
        ? await openRedis()
        : undefined
      try {
        if (redis) say(`${redis.choice}, nothing on disk`)
        for (const peer of peers) say(`${peer}: ${knownPeer(peer).title}`)
        for (const { id, variants } of flags.scenarios) {
          if (variants)
            say(`${id}: variants beside each other, ${variants.map(({ name }) => name).join(' | ')}`)
        }
        await run(flags, database, redis, build.folder)
      } finally {
        await redis?.stop()
      }
    } finally {
      await database.stop()
    }
  } finally {
    build.remove()
  }
}

async function plans({ sizes }: Flags, database: Database, longshore: string): Promise<void> {
  const open = await knownPeer(OURS).load()
  const { install } = await open({ postgres: database.url, longshore, load: 'backlog' })
  await writePlans({ database, sizes, install, say })
}

async function run(
  flags: Flags,
  database: Database,
  redis: RedisUnderTest | undefined,
  longshore: string,
): Promise<void> {
  const onResult = async (result: Result, scenario: Scenario, profiles: string | undefined) => {
    say(formatResult(result, scenario))
    if (!profiles) return
    console.log(`\n${formatProfiles(profiles, result.jobs)}\n`)
    if (database.hasStatements) console.log(`${await formatStatements(database, result.jobs)}\n`)
  }
  const { results, unmeasured } = await runRounds({
    scenarios: flags.scenarios,
    peers: flags.peers,
    sizes: flags.sizes,
    database,
    redis,
    longshore,
    profile: flags.profile,
    onStart: (round, scenario, side) =>
      hint(`round ${round} of ${flags.sizes.rounds}: ${scenario.question}, ${side} …`),
    onResult,
    onUnmeasured: one => say(formatUnmeasured(one)),
  })
  const summary = summarize(flags.scenarios, flags.peers, { results, unmeasured })
  const whole = {
    at: new Date().toISOString(),
    postgres: database.choice,
    ...(redis ? { redis: redis.choice } : {}),
    node: process.version,
    machine: `${availableParallelism()} cores, ${cpus()[0]?.model}`,
    sizes: flags.sizes,
    summary,
    results,
  }
  if (flags.isSaved) say(`saved ${saveResults(flags.setName, whole)}`)
  if (flags.isJson) console.log(JSON.stringify(whole, null, 2))
  else if (!flags.profile) console.log(`\n${formatSummary(summary, flags.peers)}`)
}

try {
  const flags = readFlags(process.argv.slice(2))
  if (flags) await main(flags)
  else console.log(USAGE)
} catch (error) {
  say(`bench failed: ${(error as Error).message}`)
  process.exitCode = 1
}
