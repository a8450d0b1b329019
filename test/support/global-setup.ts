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
import { BUILT_FOLDER } from './spawn-cli.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A database of the server, for creating others. */
    adminUrl: string
    template: string
    redisUrl: string
    /** Which way the jobs of this run come to their workers. */
    dispatch: 'direct' | 'redis'
  }
}

/** Once, though this is called for each project. */
const once = globalThis as { built?: Promise<unknown> }

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  once.built ??= Promise.all([build({ dts: false, logLevel: 'error' }), buildScripts(BUILT_FOLDER)])
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis(), once.built])
  process.stdout.write(`${postgres.choice}\n${redis.choice}\n`)
  const template = `longshore_test_${process.pid}_template`
  const url = new URL(postgres.url)
  url.pathname = `/${template}`
  const admin = new pg.Client(postgres.url)
  await admin.connect()
  try {
    await admin.query(`create database ${template}`)
    await migrate({ postgres: url.href })
  } finally {
    await admin.end()
  }
  project.provide('adminUrl', postgres.url)
  project.provide('template', template)
  project.provide('redisUrl', redis.url)

  return async () => {
    const again = new pg.Client(postgres.url)
    await again.connect()
    await again.query(`drop database if exists ${template} with (force)`)
    await again.end()
    await Promise.all([postgres.stop(), redis.stop()])
  }
}
