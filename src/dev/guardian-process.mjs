/**
 * The guardian: a process of its own that starts servers on behalf of a parent and ends them, and removes their
 * temporary folders, when the parent is gone. It notices by its IPC channel, which the kernel closes however the
 * parent dies. Plain JavaScript, because it runs under bare `node`, from `src` as well as from `dist`.
 *
 * Asked:    { id, verb: 'folder', base, prefix } | { id, verb: 'spawn', … } | { verb: 'signal', child, signal }
 * Answers:  { id, event: 'folder' | 'spawned' | 'ready' | 'exit' | 'refused', … }
 */
import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const guardianFile = fileURLToPath(import.meta.url)
export const guardianMark = 'longshore-guardian'

const OUTPUT_KEPT = 16_384
const END_GRACE_MS = 2_000

if (process.argv[2] === guardianMark && process.send) guard()

function guard() {
  /** @type {Map<number, { process: import('node:child_process').ChildProcess, endSignal: NodeJS.Signals }>} */
  const children = new Map()
  const folders = new Set()
  let ending = false

  const answer = message => {
    if (process.connected) process.send(message, () => {})
  }

  process.on('message', request => {
    if (ending) return
    try {
      if (request.verb === 'folder') {
        const folder = mkdtempSync(join(request.base, request.prefix))
        folders.add(folder)
        // The servers of a root parent run as another user and have to pass through.
        chmodSync(folder, 0o755)
        answer({ id: request.id, event: 'folder', folder })
      } else if (request.verb === 'spawn') {
        start(request)
      } else if (request.verb === 'signal') {
        const child = children.get(request.child)
        if (child) send(child.process, request.signal)
      }
    } catch (error) {
      answer({ id: request.id, event: 'refused', reason: String(error) })
    }
  })

  function start({ id, command, args, env, cwd, user, readyLine, endSignal }) {
    const child = spawn(command, args, {
      env,
      cwd,
      ...user,
      // A group of its own: signals of a terminal do not reach it. Its stdin closes when the guardian dies.
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const ready = readyLine ? new RegExp(readyLine, 'm') : undefined
    let output = ''
    let isReady = false
    const read = chunk => {
      output = (output + chunk).slice(-OUTPUT_KEPT)
      if (ready && !isReady && ready.test(output)) {
        isReady = true
        answer({ id, event: 'ready' })
      }
    }
    child.stdin.on('error', () => {})
    child.stdout.setEncoding('utf8').on('data', read)
    child.stderr.setEncoding('utf8').on('data', read)
    child.on('error', error => {
      if (child.pid === undefined)
        answer({ id, event: 'exit', code: -1, signal: null, output: String(error) })
    })
    if (child.pid === undefined) return
    children.set(id, { process: child, endSignal })
    answer({ id, event: 'spawned', pid: child.pid })
    child.on('exit', (code, signal) => {
      children.delete(id)
      // Orphans of a killed server may hold the pipes open, so the last words are awaited for a moment only.
      const closed = new Promise(resolve => child.once('close', resolve))
      const patience = new Promise(resolve => setTimeout(resolve, 200))
      Promise.race([closed, patience]).then(() => answer({ id, event: 'exit', code, signal, output }))
    })
  }

  async function end() {
    if (ending) return
    ending = true
    const left = [...children.values()].map(({ process: child, endSignal }) => {
      const gone = new Promise(resolve => child.once('exit', resolve))
      send(child, endSignal)
      setTimeout(() => send(child, 'SIGKILL'), END_GRACE_MS).unref()
      return gone
    })
    await Promise.all(left)
    for (const folder of folders) {
      await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }).catch(() => {})
    }
    process.exit(0)
  }

  process.on('disconnect', end)
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, end)
}

/** SIGKILL takes a server's own children along: Postgres backends in a long query would not notice its death. */
function send(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return
  if (signal !== 'SIGKILL') {
    child.kill(signal)
    return
  }
  child.kill('SIGSTOP')
  const family = childrenOf(child.pid)
  child.kill('SIGKILL')
  for (const pid of family) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended by itself.
    }
  }
}

function childrenOf(parent) {
  if (process.platform !== 'linux') return pgrep(parent)
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => {
      try {
        // The name in parentheses may hold spaces; the parent is the second field after it.
        return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ')[1]) === parent
      } catch {
        return false
      }
    })
    .map(Number)
}

function pgrep(parent) {
  try {
    return execFileSync('pgrep', ['-P', String(parent)], { encoding: 'utf8' })
      .split('\n')
      .filter(Boolean)
      .map(Number)
  } catch {
    return []
  }
}
