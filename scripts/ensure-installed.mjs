/**
 * Runs before `npm start`, `npm test` and `npm run check`: makes sure that node_modules fits package-lock.json, and runs
 * `npm ci` only when it does not. Plain Node, since nothing may be installed yet; about 10 ms when all is well.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const modules = join(root, 'node_modules')
/** Written after `npm ci`: for which lockfile, on which platform. */
const stampFile = join(modules, '.longshore-installed')
const lockText = readFileSync(join(root, 'package-lock.json'), 'utf8')
const stamp = createHash('sha256').update(`${process.platform} ${process.arch}\n${lockText}`).digest('hex')

refuseOldNode()
const reason = whyInstall()
if (reason !== undefined) process.exitCode = install(reason)

function refuseOldNode() {
  const wanted = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).engines.node.replace('>=', '')
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const [wantedMajor = 0, wantedMinor = 0] = wanted.split('.').map(Number)
  if (major > wantedMajor || (major === wantedMajor && minor >= wantedMinor)) return
  console.error(
    `longshore needs Node ${wanted} or newer; this is Node ${process.versions.node}. Install a newer one from https://nodejs.org, or with nvm: nvm install ${wantedMajor}`,
  )
  process.exit(1)
}

/** Compares what npm wrote when it finished (an interrupted install leaves no such file) with what the lockfile asks for. */
function whyInstall() {
  if (!existsSync(modules)) return 'node_modules is missing'
  const installed = readPackages(join(modules, '.package-lock.json'))
  if (installed === undefined) return 'node_modules is incomplete'
  const locked = JSON.parse(lockText).packages
  for (const [path, found] of Object.entries(installed)) {
    if (locked[path]?.version !== found.version) return `${path} is not the version of package-lock.json`
    if (!isForThisMachine(found)) return `${path} is for another platform`
    if (!existsSync(join(root, path, 'package.json'))) return `${path} is gone`
  }
  const isTried = existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp
  for (const [path, wanted] of Object.entries(locked)) {
    if (path === '' || path in installed) continue
    if (!wanted.optional) return `${path} is missing`
    // An optional package that the registry does not have stays missing: one try is enough.
    if (wanted.os !== undefined && wanted.libc === undefined && isForThisMachine(wanted) && !isTried)
      return `${path} is missing`
  }
  return undefined
}

function readPackages(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages
  } catch {
    return undefined
  }
}

function isForThisMachine({ os, cpu }) {
  return allows(os, process.platform) && allows(cpu, process.arch)
}

/** `os` and `cpu` of a package list what is allowed, or with `!` what is not. */
function allows(list, name) {
  if (list === undefined || list.includes('any')) return true
  return list.includes(name) || (list.every(one => one.startsWith('!')) && !list.includes(`!${name}`))
}

function install(reason) {
  console.error(`longshore: ${reason}; running npm ci, once`)
  // `include`: the demo and the tests need the development tools also where NODE_ENV is production.
  const args = ['ci', '--ignore-scripts', '--include=dev', '--include=optional', '--loglevel=error']
  const npm = process.env['npm_execpath'] ?? ''
  const options = { cwd: root, stdio: ['inherit', 'pipe', 'inherit'], encoding: 'utf8' }
  const done =
    basename(npm) === 'npm-cli.js'
      ? spawnSync(process.execPath, [npm, ...args], options)
      : spawnSync('npm', args, { ...options, shell: process.platform === 'win32' })
  if (done.status === 0) {
    writeFileSync(stampFile, stamp)
    return 0
  }
  console.error(`${done.stdout ?? ''}longshore: npm ci failed${done.error ? `: ${done.error.message}` : ''}`)
  return done.status ?? 1
}
