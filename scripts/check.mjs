/**
 * `npm run check`: everything that is checked besides the tests, two checks at a time. `npm run check -- lint borders`
 * runs only those. A check answers `{ ok, output }`, or `{ skipped: reason }`; output is shown of those that failed.
 */
import { spawn } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const AT_ONCE = 2
const root = fileURLToPath(new URL('..', import.meta.url))
/** The one packing that several checks look at. */
let packed
const scratch = mkdtempSync(join(tmpdir(), 'longshore-check-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

/** The slow ones first, so that the quick ones fill the gaps. */
const checks = {
  // What the user gets is the tarball, so that is what is looked at.
  publint: () => withPackage(({ tarball }) => run('publint', ['run', tarball, '--strict'])),
  attw: () => withPackage(({ tarball }) => run('attw', [tarball, '--profile', 'esm-only'])),
  'package-starts': () => withPackage(startPackage),
  'package-types': () => withPackage(checkPublishedTypes),
  api: () => withPackage(checkApi),
  types: () => run('tsc', ['--noEmit']),
  borders: () => run('depcruise', ['src']),
  'dead-code': () => run('knip', ['--no-progress']),
  lint: () => run('biome', ['ci', '.', '--colors=off']),
  compose: checkCompose,
  'machine-traces': checkMachineTraces,
}

process.exitCode = await main(process.argv.slice(2))

async function main(asked) {
  const unknown = asked.filter(name => !(name in checks))
  if (unknown.length > 0) {
    console.error(`there is no check ${unknown.join(', ')}; there are: ${Object.keys(checks).join(', ')}`)
    return 1
  }
  const waiting = asked.length > 0 ? asked : Object.keys(checks)
  const count = { passed: 0, failed: 0, skipped: 0 }
  const lane = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      count[await runCheck(name)] += 1
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, lane))
  const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ''
  console.log(`check: ${count.passed} passed, ${count.failed} failed${skipped}`)
  return count.failed === 0 ? 0 : 1
}

async function runCheck(name) {
  const from = performance.now()
  const { ok, output, skipped } = await checks[name]().catch(error => ({ ok: false, output: error.stack }))
  const seconds = ((performance.now() - from) / 1000).toFixed(1)
  if (skipped !== undefined) {
    console.log(`- ${name} skipped: ${skipped}`)
    return 'skipped'
  }
  console.log(ok ? `✓ ${name} (${seconds} s)` : `✗ ${name} (${seconds} s)\n${indent(output)}`)
  return ok ? 'passed' : 'failed'
}

function indent(text) {
  return text.trimEnd().replace(/^(?=.)/gm, '    ')
}

/** Runs a program, or a tool of node_modules, to its end. */
function run(program, args, cwd = root) {
  const path = [join(root, 'node_modules', '.bin'), process.env['PATH'] ?? ''].join(delimiter)
  const { FORCE_COLOR: _, ...inherited } = process.env
  const env = { ...inherited, PATH: path, NO_COLOR: '1' }
  return new Promise(resolve => {
    let output = ''
    const child = spawn(program, args, {
      cwd,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
      shell: process.platform === 'win32',
    })
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', text => {
        output += text
      })
    }
    child.once('error', error => resolve({ ok: false, output: `${program}: ${error.message}` }))
    child.once('close', (code, signal) => {
      if (signal) output += `\n${program} was ended by ${signal}`
      resolve({ ok: code === 0, output: output || `${program} ended with exit code ${code}` })
    })
  })
}

/** Builds and packs once, for whichever check needs it first. */
async function withPackage(check) {
  packed ??= pack()
  const { failure, ...result } = await packed
  return failure ?? check(result)
}

async function pack() {
  // `npm pack` builds first: see `prepack`.
  const done = await run('npm', ['pack', '--pack-destination', scratch])
  if (!done.ok) return { failure: done }
  const name = readdirSync(scratch).find(file => file.endsWith('.tgz'))
  const unpacked = await run('tar', ['-xzf', name], scratch)
  if (!unpacked.ok) return { failure: unpacked }
  return { tarball: join(scratch, name), folder: join(scratch, 'package') }
}

/** Loads what package.json names, from an installed copy: finds a file that the build or `files` left out. */
async function startPackage({ folder }) {
  const modules = join(scratch, 'installed', 'node_modules')
  mkdirSync(modules, { recursive: true })
  for (const name of readdirSync(join(root, 'node_modules'))) {
    if (!name.startsWith('.') && name !== 'longshore')
      symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  symlinkSync(folder, join(modules, 'longshore'))
  const { exports, bin } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const imports = Object.keys(exports)
    .filter(path => !path.endsWith('.json'))
    .map(path => `await import('longshore${path.slice(1)}')`)
  const node = [process.execPath, '--preserve-symlinks', '--preserve-symlinks-main']
  const trials = [
    [...node, '--input-type=module', '--eval', imports.join('\n')],
    ...Object.values(bin).map(file => [...node, join(modules, 'longshore', file), '--help']),
  ]
  for (const [program, ...args] of trials) {
    const done = await run(program, args, join(scratch, 'installed'))
    if (!done.ok) return done
  }
  return { ok: true, output: '' }
}

/** A package named in the published types must come with the package, and with types of its own. */
async function checkPublishedTypes({ folder }) {
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const given = { ...manifest.dependencies, ...manifest.peerDependencies }
  const problems = new Set()
  // Only what a user's compiler reaches: the bundler also leaves declaration files that nothing refers to.
  const reached = new Set(
    Object.values(manifest.exports).flatMap(entry => (entry.types ? [join(entry.types)] : [])),
  )
  for (const file of reached) {
    const text = readFileSync(join(folder, file), 'utf8')
    for (const [, specifier] of text.matchAll(/(?:\bfrom|\bimport\(?) ?["']([^"']+)["']/g)) {
      if (specifier.startsWith('node:')) continue
      if (specifier.startsWith('.')) {
        reached.add(join(dirname(file), specifier.replace(/\.js$/, '.d.ts')))
        continue
      }
      const name = specifier
        .split('/')
        .slice(0, specifier.startsWith('@') ? 2 : 1)
        .join('/')
      const types = `@types/${name.replace('@', '').replace('/', '__')}`
      if (!(name in given)) problems.add(`${file} names ${name}, which is not a dependency`)
      else if (!hasTypes(name) && !(types in given))
        problems.add(`${file} needs the types of ${name}: make ${types} a dependency`)
    }
  }
  if (problems.size > 0) return { ok: false, output: [...problems].join('\n') }
  return compileUser(folder)
}

/** The reports in the repository are those of this build. */
async function checkApi() {
  const { writeReports } = await import('./api-report.mjs')
  const [fresh, known] = [join(scratch, 'api'), join(root, 'docs', 'api')]
  const problems = writeReports(fresh)
  if (problems.length > 0) return { ok: false, output: problems.join('\n') }
  const same = await run('git', ['diff', '--no-index', '--no-color', known, fresh])
  if (same.ok) return same
  return {
    ok: false,
    output: `${same.output}\nthe public API has changed: npm run api:report, and look at what it writes`,
  }
}

/** A user's compiler finds the types however it looks for modules: as it did before `exports`, and as it does since. */
async function compileUser(folder) {
  const user = join(scratch, 'user')
  mkdirSync(join(user, 'node_modules'), { recursive: true })
  symlinkSync(folder, join(user, 'node_modules', 'longshore'))
  writeFileSync(
    join(user, 'user.ts'),
    `import { defineTask, type Producer } from 'longshore'
import { startPostgres } from 'longshore/dev'
export const name: string = defineTask<{ to: string }>({ name: 'a' }).name
export const all: [Producer | undefined, typeof startPostgres] = [undefined, startPostgres]
`,
  )
  writeFileSync(join(user, 'package.json'), '{ "type": "module" }')
  for (const resolution of ['node10', 'node16', 'bundler']) {
    const module = resolution === 'node16' ? 'node16' : 'esnext'
    const compilerOptions = {
      ...{ noEmit: true, strict: true, skipLibCheck: true, target: 'es2022', types: [] },
      ...{ ignoreDeprecations: '6.0', module, moduleResolution: resolution },
    }
    writeFileSync(join(user, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['user.ts'] }))
    const done = await run('tsc', [], user)
    if (!done.ok) return { ok: false, output: `moduleResolution ${resolution}:\n${done.output}` }
  }
  return { ok: true, output: '' }
}

function hasTypes(name) {
  const { types, typings, exports } = JSON.parse(
    readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8'),
  )
  return Boolean(types ?? typings ?? JSON.stringify(exports ?? {}).includes('"types"'))
}

async function checkCompose() {
  const client = await run('docker', ['compose', 'version'])
  if (!client.ok) return { skipped: 'there is no docker compose client here' }
  return run('docker', ['compose', 'config', '--quiet'])
}

/** Nothing in git may name the machine it was written on, nor the registry its packages came from. */
async function checkMachineTraces() {
  const listed = await run('git', ['ls-files', '--cached', '--others', '--exclude-standard'])
  if (!listed.ok) return { skipped: 'this is not a git working tree' }
  const problems = []
  for (const file of listed.output.split('\n')) {
    if (file === '' || !existsSync(join(root, file))) continue
    const lines = readFileSync(join(root, file), 'utf8').split('\n')
    for (const [index, line] of lines.entries()) {
      const trace = traceIn(file, line)
      if (trace !== undefined) problems.push(`${file}:${index + 1} names ${trace}`)
    }
  }
  return { ok: problems.length === 0, output: problems.join('\n') }
}

function traceIn(file, line) {
  const path = line.match(/(?<![\w.~$})\]*-])\/(?:work|tmp|root|Users)\/[\w.-]+/)?.[0]
  if (path !== undefined) return `the path ${path}`
  if (file.endsWith('package-lock.json') && /"resolved": "https?:/.test(line))
    return 'a registry ("resolved")'
  if (file.endsWith('.npmrc') && /^\s*([\w@/.:-]*registry|.*_auth\w*)\s*=/i.test(line)) return 'a registry'
  return undefined
}
