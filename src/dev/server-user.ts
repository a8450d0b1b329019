/**
 * Owns as whom a server runs: Postgres refuses to run as root, so the servers of a root parent run as nobody. It also
 * answers which folders that user can enter, since a root parent often lives below a 0700 home.
 */
import { chown, lchown, readdir, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { LongshoreError } from '../job/errors.ts'

export interface ServerUser {
  readonly uid: number
  readonly gid: number
}

const NOBODY: ServerUser = { uid: 65534, gid: 65534 }

export const serverUser: ServerUser | undefined = process.getuid?.() === 0 ? NOBODY : undefined

/** Whether the server's user can pass through a folder and all above it. */
export async function canEnter(folder: string): Promise<boolean> {
  if (!serverUser) return true
  for (let path = resolve(folder); ; path = dirname(path)) {
    const found = await stat(path).catch(() => undefined)
    if (found) {
      const { uid, gid } = serverUser
      const needed = found.uid === uid ? 0o100 : found.gid === gid ? 0o010 : 0o001
      if ((found.mode & needed) === 0) return false
    }
    if (path === dirname(path)) return true
  }
}

/** The folder for temporary files: the usual one, unless the server's user cannot get there. */
export async function temporaryBase(): Promise<string> {
  for (const base of [tmpdir(), '/tmp', '/var/tmp']) {
    if ((await stat(base).catch(() => undefined))?.isDirectory() && (await canEnter(base))) return base
  }
  throw new LongshoreError(
    'STORE_UNAVAILABLE',
    `no temporary folder that uid ${NOBODY.uid} can enter: set TMPDIR to one, or do not run as root`,
  )
}

/** Before a folder is given away with all that is in it: is it what the caller thinks it is? */
export async function refuseForeignContent(dataDir: string, known: RegExp): Promise<void> {
  const foreign = (await readdir(dataDir)).filter(name => !known.test(name))
  if (foreign.length === 0) return
  throw new LongshoreError(
    'STORE_UNSUPPORTED',
    `the data folder ${dataDir} holds something else (${foreign.slice(0, 3).join(', ')} …): choose another or empty it`,
  )
}

/** Where a server is started, and by which name it knows its folder from there. */
export interface Reach {
  readonly cwd: string
  readonly path: string
}

/**
 * How the server's user gets to a folder of its own. Below a folder that only root may enter, it is started inside: root goes there
 * before it becomes another user, and this name leads each process to where it works, whatever is above.
 */
export async function reachOf(folder: string): Promise<Reach> {
  if (await canEnter(dirname(folder))) return { cwd: '/', path: folder }
  return { cwd: folder, path: '/proc/self/cwd' }
}

/** Makes a data folder the server's, if it can get there. */
export async function takeOver(dataDir: string): Promise<void> {
  if (!serverUser) return
  if (process.platform !== 'linux' && !(await canEnter(dirname(dataDir)))) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `the data folder ${dataDir} cannot be entered by uid ${serverUser.uid}, as which the servers of root run: choose one outside of 0700 folders`,
    )
  }
  if ((await stat(dataDir)).uid !== serverUser.uid) await giveToServer(dataDir)
}

/** Gives a file, or a folder and all in it, to the server's user. */
export async function giveToServer(path: string): Promise<void> {
  if (!serverUser) return
  const { uid, gid } = serverUser
  await chown(path, uid, gid)
  const entries = await readdir(path, { withFileTypes: true, recursive: true }).catch(() => [])
  for (const entry of entries) await lchown(join(entry.parentPath, entry.name), uid, gid)
}
