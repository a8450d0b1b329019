/** What these tests know about the machine they run on, and an environment that holds no choices of the developer. */
import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { openPool } from '../../src/postgres/connect.ts'

export const isRoot = process.getuid?.() === 0
export const isLinux = process.platform === 'linux'
export const hasLocalPostgres = isOnPath('postgres') || existsSync('/usr/lib/postgresql')
export const hasLocalRedis = isOnPath('redis-server') || isOnPath('valkey-server')
export const hasApt = isOnPath('apt-get') && isOnPath('dpkg')
export const hasOpenssl = isOnPath('openssl')
/** Replicas, clusters, TLS and disks need a real server. */
export const hasRealRedis = hasLocalRedis || hasApt

export function bareEnv(more: Record<string, string> = {}): Record<string, string> {
  return { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '/', ...more }
}

function isOnPath(name: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some(folder => {
    try {
      accessSync(join(folder, name), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

/** A folder for the length of one test, which servers of root can enter too. */
export async function testFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'stores-test-'))
  await chmod(folder, 0o755)
  onTestFinished(() => rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }))
  return folder
}

export async function writeProgram(folder: string, name: string, script: string): Promise<void> {
  await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`)
  await chmod(join(folder, name), 0o755)
}

export async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const pool = openPool(url, 1, () => {}, { isLent: true })
  try {
    return (await pool.query(text)).rows
  } finally {
    await pool.end()
  }
}

/** A zombie that init has not reaped yet has ended, too. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !isLinux || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

export async function until(isTrue: () => boolean | Promise<boolean>, limitMs = 10_000): Promise<void> {
  const deadline = Date.now() + limitMs
  while (!(await isTrue())) {
    if (Date.now() > deadline) throw new Error(`not true after ${limitMs} ms: ${isTrue}`)
    await delay(10)
  }
}
