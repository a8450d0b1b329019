/**
 * Starts one Postgres and one Redis for all test files, and a migrated template in Postgres, which each file clones. Builds the
 * command line and the scripts of processes.
 */
import pg from 'pg'
import { build } from 'tsdown'
import type { TestProject } from 'vitest/node'
import { startPostgres, startRedis } from '../../src/dev/index.ts'
import { migrate } from '../../src/index.ts'
import { buildScripts } from './build-scripts.ts'
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
    /** What the names of roles begin with that processes of this run have; empty: they are the owner. */
    roles: string
  }
}

/** Who connects, and with which roles. */
const USERS: readonly [name: string, has: readonly Kind[]][] = [
  ...KINDS.map((kind): [string, Kind[]] => [kind, [kind]]),
  ['app', ['worker', 'producer']],
]

/** Once, though this is called for each project. */
const once = globalThis as { built?: Promise<unknown> }

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  once.built ??= Promise.all([build({ dts: false, logLevel: 'error' }), buildScripts(BUILT_FOLDER)])
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis(), once.built])
  process.stdout.write(`${postgres.choice}\n${redis.choice}\n`)
  const template = `longshore_test_${process.pid}_template`
  // Where jobs go through Redis, processes have the roles that they would have in production.
  const roles = project.config.provide.dispatch === 'redis' ? `longshore_test_${process.pid}` : ''
  const url = new URL(postgres.url)
  url.pathname = `/${template}`
  const admin = new pg.Client(postgres.url)
  await admin.connect()
  try {
    await admin.query(`create database ${template}`)
    await migrate({ postgres: url.href, roles: roles || false })
    for (const [user, kinds] of roles ? USERS : []) {
      await admin.query(`create role "${roles}_user_${user}" login`)
      for (const kind of kinds) await admin.query(`grant "${roles}_${kind}" to "${roles}_user_${user}"`)
    }
  } finally {
    await admin.end()
  }
  project.provide('adminUrl', postgres.url)
  project.provide('template', template)
  project.provide('redisUrl', redis.url)
  project.provide('roles', roles)

  return async () => {
    const again = new pg.Client(postgres.url)
    await again.connect()
    await again.query(`drop database if exists ${template} with (force)`)
    for (const [user] of roles ? USERS : []) await again.query(`drop role if exists "${roles}_user_${user}"`)
    for (const kind of roles ? KINDS : []) await again.query(`drop role if exists "${roles}_${kind}"`)
    await again.end()
    await Promise.all([postgres.stop(), redis.stop()])
  }
}
