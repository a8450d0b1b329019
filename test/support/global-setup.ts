/** Starts one Postgres for all test files and a migrated template in it, which each file clones. */
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { startPostgres } from '../../src/dev/index.ts'
import { migrate } from '../../src/index.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A database of the server, for creating others. */
    adminUrl: string
    template: string
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres()
  process.stdout.write(`${postgres.choice}\n`)
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

  return async () => {
    const again = new pg.Client(postgres.url)
    await again.connect()
    await again.query(`drop database if exists ${template} with (force)`)
    await again.end()
    await postgres.stop()
  }
}
