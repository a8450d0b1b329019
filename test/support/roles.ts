/** Roles of a test, and users that have them: all gone after the file. Call before `useDatabase`, so that the database goes first. */
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, inject } from 'vitest'
import { KINDS, type Kind } from './role-kinds.ts'

export interface TestRoles {
  /** What the names of the roles begin with. */
  readonly prefix: string
  /** Make a user that can connect, with these roles and attributes. Returns its name. */
  user(name: string, options?: { has?: readonly Kind[]; attributes?: string }): Promise<string>
  admin<Row = Record<string, unknown>>(text: string, values?: unknown[]): Promise<Row[]>
}

export function useRoles(): TestRoles {
  const prefix = `ls_test_${randomBytes(6).toString('hex')}`
  const users: string[] = []

  const admin = async <Row>(text: string, values?: unknown[]) => {
    const client = new pg.Client(inject('adminUrl'))
    await client.connect()
    try {
      return (await client.query(text, values)).rows as Row[]
    } finally {
      await client.end()
    }
  }
  afterAll(async () => {
    const names = [...users.toReversed(), ...KINDS.map(kind => `${prefix}_${kind}`)]
    for (const name of names) await admin(`drop role if exists "${name}"`)
  })

  return {
    prefix,
    admin,
    async user(name, { has = [], attributes = '' } = {}) {
      const user = `${prefix}_user_${name}`
      users.push(user)
      await admin(`create role "${user}" login ${attributes}`)
      for (const kind of has) await admin(`grant "${prefix}_${kind}" to "${user}"`)
      return user
    },
  }
}
