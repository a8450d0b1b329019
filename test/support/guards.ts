/**
 * Red tests of guards: what a guard keeps from happening is made to happen, once with the guard and once without it. With it nothing
 * is wrong; without it the audits, the tables or the test itself must say so, or they prove nothing.
 */
import { afterEach, expect } from 'vitest'
import { inWords } from './at-rest.ts'
import type { TestClient, TestDatabase } from './database.ts'
import type { Deployment } from './deployment.ts'
import { type Weakness, weakened } from './weaken.ts'

export interface Guard {
  /** What holds because of it. */
  rule: string
  /** The functions without it. */
  without: Weakness | Weakness[]
  /** Pauses for barriers, and whatever else differs both times. */
  given?: Weakness[]
  /** Lets it happen. Answers with a text what went wrong where the audits cannot see that. */
  happens: () => Promise<unknown>
  /** What is told then. */
  tells: RegExp
}

export interface Guards {
  /** Both times. */
  check(guard: Guard): Promise<void>
  /** An open transaction, rolled back in the end. */
  begin(): Promise<TestClient>
  /** Whoever comes to `pauseAt(lock)` waits until it is opened. */
  barrier(lock: number): Promise<{ open(): Promise<void> }>
}

export function useGuards(database: TestDatabase, deployment: Deployment): Guards {
  const idle: TestClient[] = []
  const used: TestClient[] = []

  const begin = async () => {
    const client = idle.pop() ?? (await database.connect())
    used.push(client)
    await client.query('begin')
    return client
  }

  const end = async () => {
    for (const client of used) await client.query('rollback').catch(() => undefined) // it may have been ended on purpose
    idle.push(...used.splice(0))
  }

  const problems = async (weaknesses: Weakness[], happens: Guard['happens']) => {
    const found: string[] = []
    try {
      const said = await weakened(database, weaknesses, happens)
      if (typeof said === 'string') found.push(said)
    } catch (error) {
      found.push(`it failed: ${(error as Error).message}`)
    }
    await end()
    if (found.length === 0) found.push(...(await deployment.violations()).map(inWords))
    await deployment.clear()
    return found
  }

  afterEach(end)

  return {
    async check({ without, given = [], happens, tells }) {
      expect(await problems(given, happens)).toEqual([])
      expect((await problems([...given, ...[without].flat()], happens)).join('\n')).toMatch(tells)
    },
    begin,
    async barrier(lock) {
      const holder = await begin()
      await holder.query('select pg_advisory_xact_lock($1)', [lock])
      return { open: async () => void (await holder.query('commit')) }
    },
  }
}

/** Goes on while something else is done; whether it failed is told when it is awaited. */
export function underWay<T>(work: Promise<T>): Promise<T> {
  work.catch(() => undefined)
  return work
}

/** For `it.each`: what holds, in full, and the rest. */
export const byRule = <T extends { rule: string }>(guards: readonly T[]): [string, T][] =>
  guards.map(guard => [guard.rule, guard])
