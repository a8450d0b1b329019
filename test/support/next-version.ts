/**
 * A version of longshore that comes after this one, as a build of its own: one migration more, all functions with another text, and
 * some of them with an argument more. To this one, processes of the version before are those of the tests.
 */
import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { afterAll, beforeAll } from 'vitest'
import { BUILT_FOLDER, type Cli, spawnFile } from './spawn-cli.ts'

export interface NextVersion {
  readonly version: string
  spawnCli(args: string[], env?: Record<string, string>): Cli
  /** One of `BUILT_SCRIPTS`. */
  spawnScript(script: string, args: string[], env?: Record<string, string>): Cli
}

/** Calls of this version go on to work: further arguments come last, and have a default. */
const WITH_MORE_ARGUMENTS: Readonly<Record<string, [before: string, after: string]>> = {
  beat: ['p_waits_alone uuid default null', 'p_waits_alone uuid default null, p_note text default null'],
  settle_and_claim: ['p_secret bytea default null', 'p_secret bytea default null, p_note text default null'],
  enqueue: ["p_options jsonb default '{}'", "p_options jsonb default '{}', p_note text default null"],
}

/** Call at the top of a file. `servesFrom`: the oldest version that may use its schema. */
export function useNextVersion(options: {
  version: string
  servesFrom: string
  /** It keeps other keys in Redis. */
  hasOtherLayout?: boolean
  /** It runs other scripts in Redis, on the same keys. */
  hasOtherScripts?: boolean
}): NextVersion {
  let folder = ''

  beforeAll(() => {
    // Under node_modules, so that it finds what it depends on.
    folder = mkdtempSync(resolve('node_modules/.longshore-next-'))
    cpSync(BUILT_FOLDER, folder, { recursive: true, dereference: true })
    cpSync('dist', join(folder, 'dist'), { recursive: true })
    const described = JSON.parse(readFileSync('package.json', 'utf8')) as object
    const release = { version: options.version, schema: { servesFrom: options.servesFrom } }
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...described, ...release }))
    changeFunctions(join(folder, 'migrations/functions'))
    addMigration(join(folder, 'migrations'))
    if (options.hasOtherLayout) changeLayout(folder)
    if (options.hasOtherScripts) appendFileSync(join(folder, 'lua/probe.lua'), '-- of the next version\n')
  })

  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  return {
    version: options.version,
    spawnCli: (args, env) => spawnFile(join(folder, 'dist/cli/main.js'), args, env),
    spawnScript: (script, args, env) => spawnFile(join(folder, script.replace(/ts$/, 'js')), args, env),
  }
}

function changeFunctions(folder: string): void {
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.sql')) continue
    const path = join(folder, file)
    const text = readFileSync(path, 'utf8')
    const [before, after] = WITH_MORE_ARGUMENTS[basename(file, '.sql')] ?? ['', '']
    if (!text.includes(before)) throw new Error(`${file} does not hold ${before}`)
    writeFileSync(path, `${text.replace(before, after)}-- of the next version\n`)
  }
}

/** Changes the table that everybody uses all the time. */
function addMigration(folder: string): void {
  const last = Math.max(...readdirSync(folder).map(file => Number(file.slice(0, 4)) || 0))
  const name = `${String(last + 1).padStart(4, '0')}_next.sql`
  writeFileSync(
    join(folder, name),
    `alter table longshore.jobs add column note text;
     alter table longshore.finished_jobs add column note text;
     create index jobs_by_note on longshore.jobs (note) where note is not null;\n`,
  )
}

/** In every file that holds it. */
function changeLayout(folder: string): void {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(file =>
    file.endsWith('.js'),
  )
  const holding = files.filter(file => /const LAYOUT = \d+/.test(readFileSync(join(folder, file), 'utf8')))
  if (holding.length === 0) throw new Error('no file of the build says which layout it has')
  for (const file of holding) {
    const text = readFileSync(join(folder, file), 'utf8')
    writeFileSync(join(folder, file), text.replace(/const LAYOUT = \d+/, 'const LAYOUT = 99'))
  }
}
