/**
 * Owns the copy from which a replica starts. The packaged Postgres brings no `pg_basebackup`, so this does what that
 * program does, for every distribution alike: pg_backup_start, copy the files while the primary works, pg_backup_stop.
 * A temporary slot keeps the WAL since then until the replica streams.
 */
import { randomBytes } from 'node:crypto'
import { constants, copyFile, mkdir, readdir, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { LongshoreError } from '../../job/errors.ts'
import type { Queryable } from '../../job/queryable.ts'
import { openPool } from '../../postgres/connect.ts'
import { giveToServer } from '../server-user.ts'
import type { Store } from '../store.ts'

// As pg_basebackup: what belongs to the running server, what is rebuilt at start, and what the replica streams.
const EMPTIED = /^(pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)\//
const LEFT_OUT =
  /(^|\/)(postmaster\.(pid|opts)|pg_internal\.init.*|pgsql_tmp.*|longshore-partial|backup_label|standby\.signal)$/
const CONTROL_FILE = 'global/pg_control'
const STREAM_LIMIT_MS = 30_000

/** @param start fills the replica's folder with the copier it is given, and starts the server. */
export async function startFromCopy<T>(
  primary: Store,
  replicaName: string,
  start: (copyInto: (folder: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  const source = primary.dataDir
  if (!source) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `a replica needs a primary of our own, not ${primary.choice}: start that with { own: true }`,
    )
  }
  const pool = openPool(primary.url, 2, () => {})
  try {
    // The backup and its slot end with their session, which the transaction holds until the replica streams.
    return await pool.transaction(async session => {
      const replica = await start(folder => copyFiles(session, source, folder))
      await untilStreaming(pool, replicaName)
      return replica
    })
  } finally {
    await pool.end()
  }
}

async function copyFiles(session: Queryable, source: string, folder: string): Promise<void> {
  const { rows } = await session.query("select current_setting('server_version_num')::int < 150000 as is_old")
  const [begin, finish] = rows[0]?.['is_old']
    ? ["pg_start_backup('longshore', true, false)", 'pg_stop_backup(false, false)']
    : ["pg_backup_start('longshore', true)", 'pg_backup_stop(false)']
  const slot = `copying_${randomBytes(6).toString('hex')}`
  await session.query('select pg_create_physical_replication_slot($1, true, true)', [slot])
  await session.query(`select ${begin}`)
  await copyTree(source, folder)
  await copyFile(join(source, CONTROL_FILE), join(folder, CONTROL_FILE))
  const stopped = (await session.query(`select * from ${finish}`)).rows[0]
  if (String(stopped?.['spcmapfile'] ?? '').trim()) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      'a primary with tablespaces cannot be copied: drop them first',
    )
  }
  await writeFile(join(folder, 'backup_label'), String(stopped?.['labelfile']), { mode: 0o600 })
  await writeFile(join(folder, 'standby.signal'), '', { mode: 0o600 })
  await giveToServer(folder)
}

async function untilStreaming(primary: Queryable, replicaName: string): Promise<void> {
  const deadline = Date.now() + STREAM_LIMIT_MS
  const text = "select from pg_stat_replication where application_name = $1 and state = 'streaming'"
  while ((await primary.query(text, [replicaName])).rows.length === 0) {
    if (Date.now() > deadline) {
      throw new LongshoreError(
        'STORE_UNAVAILABLE',
        `the replica does not stream after ${STREAM_LIMIT_MS / 1000} s`,
      )
    }
    await delay(20)
  }
}

async function copyTree(source: string, target: string, root = source): Promise<void> {
  for (const entry of await readdir(source, { withFileTypes: true })) {
    const from = join(source, entry.name)
    const to = join(target, entry.name)
    const path = relative(root, from)
    if (LEFT_OUT.test(path) || EMPTIED.test(path) || path === CONTROL_FILE) continue
    if (entry.isDirectory()) {
      await mkdir(to, { mode: 0o700 })
      await copyTree(from, to, root)
    } else if (entry.isFile()) {
      // A file may vanish while the primary works; the WAL knows of it.
      await copyFile(from, to, constants.COPYFILE_FICLONE).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
    }
  }
}
