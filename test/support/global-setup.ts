/**
 * Starts one Postgres and one Redis for all test files, and a migrated template in Postgres for each way of dispatch, which files
 * clone. Builds the command line and the scripts of processes.
 */
import pg from 'pg'
import { build } from 'tsdown'
import type { TestProject } from 'vitest/node'
import { type Store, startPostgres, startRedis } from '../../src/dev/index.ts'
import { migrate } from '../../src/index.ts'
import { buildScripts } from './build-scripts.ts'
import { addShadows, makeOdd, ODD_LOCALE } from './odd-server.ts'
import { KINDS, type Kind } from './role-kinds.ts'
import { BUILT_FOLDER } from './spawn-cli.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A database of the server, for creating others. */
    adminUrl: string
    template: string
    redisUrl: string
    /** Which way the jobs of this run come to their workers. */
    dispatch: 'direct' | 'redis'
    /** Databases are set as in odd-server.ts. */
    isOdd: boolean
    /** What the names of roles begin with that processes of this run have; empty: they are the owner. */
    roles: string
  }
}

/** Who connects, and with which roles. */
const USERS: readonly [name: string, has: readonly Kind[]][] = [
  ...KINDS.map((kind): [string, Kind[]] => [kind, [kind]]),
  ['app', ['worker', 'producer']],
]

interface Stores {
  postgres: Store
  redis: Store
}

interface Template {
  name: string
  /** What the names of its roles begin with, if it has any. */
  roles: string
}

/** Once, though this is called for each project. */
const once = globalThis as {
  built?: Promise<unknown>
  stores?: Promise<Stores>
  templates?: Map<string, Promise<Template>>
  users?: number
}

export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  // It has no tests of its own.
  if (project.isRootProject()) return
  once.built ??= Promise.all([build({ dts: false, logLevel: 'error' }), buildScripts(BUILT_FOLDER)])
  once.stores ??= startStores()
  once.templates ??= new Map()
  once.users = (once.users ?? 0) + 1
  const [stores] = await Promise.all([once.stores, once.built])
  const { dispatch = 'direct', isOdd = process.env['LONGSHORE_ODD'] === '1' } = project.config.provide
  const kind = isOdd ? `${dispatch}_odd` : dispatch
  const making = once.templates.get(kind) ?? makeTemplate(stores.postgres.url, kind, isOdd)
  once.templates.set(kind, making)
  const template = await making
  project.provide('adminUrl', stores.postgres.url)
  project.provide('template', template.name)
  project.provide('redisUrl', stores.redis.url)
  project.provide('roles', template.roles)
  project.provide('isOdd', isOdd)

  return async () => {
    once.users = (once.users ?? 1) - 1
    if (once.users > 0) return
    for (const made of once.templates?.values() ?? []) await dropTemplate(stores.postgres.url, await made)
    await Promise.all([stores.postgres.stop(), stores.redis.stop()])
  }
}

async function makeTemplate(adminUrl: string, kind: string, isOdd: boolean): Promise<Template> {
  const name = `longshore_test_${process.pid}_${kind}`
  // Processes have the roles that they would have in production.
  const roles = name
  const url = new URL(adminUrl)
  url.pathname = `/${name}`
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  try {
    await admin.query(`create database ${name} ${isOdd ? ODD_LOCALE : ''}`)
    if (isOdd) {
      const own = new pg.Client(url.href)
      await own.connect()
      await addShadows(own)
      await own.end()
      await makeOdd(admin, name)
    }
    await migrate({ postgres: url.href, roles: roles || false })
    // Producers are of one service, whose jobs they share; so is the administrator, who enqueues by SQL.
    if (roles)
      await admin.query(
        `create role "${roles}_service"; grant "${roles}_producer" to "${roles}_service"; grant "${roles}_service" to current_user`,
      )
    for (const [user, kinds] of roles ? USERS : []) {
      await admin.query(`create role "${roles}_user_${user}" login`)
      for (const kind of kinds) {
        const has = kind === 'producer' ? 'service' : kind
        await admin.query(`grant "${roles}_${has}" to "${roles}_user_${user}"`)
      }
    }
  } finally {
    await admin.end()
  }
  return { name, roles }
}

async function dropTemplate(adminUrl: string, { name, roles }: Template): Promise<void> {
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  await admin.query(`drop database if exists ${name} with (force)`)
  for (const [user] of roles ? USERS : []) await admin.query(`drop role if exists "${roles}_user_${user}"`)
  for (const kind of roles ? ['service', ...KINDS] : [])
    await admin.query(`drop role if exists "${roles}_${kind}"`)
  await admin.end()
}

async function startStores(): Promise<Stores> {
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
  process.stdout.write(`${postgres.choice}\n${redis.choice}\n`)
  // Nobody takes the power from under this one, and whatever else ends it leaves to the kernel what was written. Those that tests
  // kill are their own.
  if (postgres.dataDir !== undefined) {
    const admin = new pg.Client(postgres.url)
    await admin.connect()
    for (const setting of ['fsync', 'full_page_writes'])
      await admin.query(`alter system set ${setting} = off`)
    await admin.query('select pg_reload_conf()')
    await admin.end()
  }
  return { postgres, redis }
}
