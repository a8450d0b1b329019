/**
 * Owns what happens to the lock file of a Postgres that was killed. Postgres removes it itself when its pid is free.
 * When the pid has been given to another program since (common in containers, where pids start low), or is a zombie
 * that is never reaped, Postgres would refuse to start for ever.
 */
import { execFile } from 'node:child_process'
import { readdir, readFile, readlink, realpath, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { LongshoreError } from '../../job/errors.ts'

export async function clearStaleLock(dataDir: string): Promise<void> {
  const lock = join(dataDir, 'postmaster.pid')
  const pid = Number.parseInt(await readFile(lock, 'utf8').catch(() => ''), 10)
  if (!pid || !isAlive(pid)) return
  const server = process.platform === 'linux' ? await serverIn(dataDir) : await postgresNamed(pid)
  if (server) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `a Postgres (pid ${server}) already runs on ${dataDir}: stop it, or choose another folder`,
    )
  }
  await rm(lock, { force: true })
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Every process of a Postgres server works in its data folder; the ones we may not look at are not ours. */
async function serverIn(dataDir: string): Promise<number | undefined> {
  const folder = await realpath(dataDir)
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name))
  for (const pid of pids) {
    if ((await readlink(`/proc/${pid}/cwd`).catch(() => '')) === folder) return Number(pid)
  }
  return undefined
}

async function postgresNamed(pid: number): Promise<number | undefined> {
  const { stdout } = await promisify(execFile)('ps', ['-p', String(pid), '-o', 'comm=']).catch(() => ({
    stdout: '',
  }))
  return /postgres/.test(stdout) ? pid : undefined
}
