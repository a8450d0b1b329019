/** The red side of who leads, what is forgotten of the outbox, and which schema a process may work on. */
import { beforeEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { checkDatabase } from '../../src/postgres/check-database.ts'
import { noteGeneration, raiseEpoch } from '../../src/postgres/relay-reads.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, useGuards } from '../support/guards.ts'
import { weakened, withWeakQueries } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin } = useGuards(database, deployment)
const task = defineTask({ name: 'task' })

const db = {
  query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
}
const free = () =>
  database.rows("update longshore.leader set holder = null, rank = 0, expires_at = '-infinity'")
beforeEach(free)

const lead = async (holder: string, rank = 2) =>
  (
    await database.rows<{ epoch: string | null }>('select longshore.lead($1, 60000, $2) as epoch', [
      holder,
      rank,
    ])
  )[0]?.epoch ?? null
const throughRedis = () => database.rows("update longshore.settings set dispatch = 'redis'")
/** What the relay does next: forgets what it has applied, and reads on. */
const read = async (holder: string, done: string[] = [], from = '0') => {
  const [row] = await database.rows<{ rows: string | null; ready: string | null }>(
    "select rows, ready from longshore.relay_read($1, $2, '{}', '{}', $3, 100, '{}', '{}')",
    [holder, done, from],
  )
  return {
    rows: row?.rows?.split(',') ?? [],
    ready: (row?.ready ?? '').split(',').map(item => item.split(' ')[0]),
  }
}
const noted = async () => (await database.rows('select from longshore.outbox')).length

/** Its row has a lower number than that of another, and is committed later. */
const commitLate = async () => {
  await throughRedis()
  const late = await begin()
  const producer = deployment.producer()
  const job = await producer.enqueue(task, 'late', { tx: late })
  await producer.enqueue(task, 'early')
  return { job, commit: () => late.query('commit') }
}

const terms: Guard[] = [
  {
    rule: 'one leads at a time',
    without: { name: 'lead', guard: 'free-lease' },
    happens: async () => {
      await free()
      await lead('one')
      if ((await lead('other')) !== null) return 'two lead at once'
    },
    tells: /two lead at once/,
  },
  {
    rule: 'each term has an epoch of its own, by which Redis tells leaders apart',
    without: { name: 'lead', guard: 'next-epoch' },
    happens: async () => {
      await free()
      const one = await lead('one')
      await database.rows("update longshore.leader set expires_at = '-infinity'")
      if ((await lead('other')) === one) return 'two leaders have the same epoch'
    },
    tells: /the same epoch/,
  },
  {
    rule: 'whoever does not lead forgets no row of the outbox',
    without: { name: 'relay_read', guard: 'only-leader' },
    happens: async () => {
      await free()
      await throughRedis()
      await lead('one')
      await deployment.producer().enqueue(task, 1)
      const { rows } = await read('one')
      await database.rows("update longshore.leader set expires_at = '-infinity'")
      await lead('other')
      // It applied them to what the other has not adopted, perhaps.
      await read('one', rows)
      if ((await noted()) === 0) return 'rows are forgotten by one who does not lead'
    },
    tells: /forgotten by one who does not lead/,
  },
  {
    rule: 'exactly the rows that were read are forgotten: others may commit late',
    without: {
      name: 'relay_read',
      guard: 'exact-rows',
      replacement: 'o.id <= (select max(d.id) from unnest(p_done) as d(id))',
    },
    happens: async () => {
      await free()
      await lead('one')
      const { job, commit } = await commitLate()
      const { rows } = await read('one')
      await commit()
      const next = await read('one', rows)
      if (!next.ready.includes(job.id) && !(await read('one')).ready.includes(job.id))
        return 'a row is forgotten that nobody has read'
    },
    tells: /forgotten that nobody has read/,
  },
  {
    rule: 'only who leads without Redis leaves it',
    without: { name: 'switch_to_direct', guard: 'no-relay' },
    happens: async () => {
      await free()
      await throughRedis()
      await lead('relay')
      await database.rows("update longshore.leader set since = now() - interval '1 hour'")
      await deployment.producer().enqueue(task, 1)
      await database.rows("select longshore.switch_to_direct('relay')")
      if ((await noted()) === 0) return 'the outbox of a relay that leads is dropped'
    },
    tells: /is dropped/,
  },
]

describe('a term', () => {
  it.each(byRule(terms))('[X7] %s', (_, guard) => check(guard))

  it('[X7] a full look finds what was committed late; one behind the newest row would not', async () => {
    await lead('one')
    const { job, commit } = await commitLate()
    const { rows } = await read('one')
    await commit()
    expect((await read('one', rows, rows.at(-1))).ready).not.toContain(job.id)
    expect((await read('one')).ready).toContain(job.id)
  })

  it('[X7] whoever does not lead begins no generation, and raises no epoch', async () => {
    await lead('one')
    const other = { name: 'other', secret: null }
    const begin = () => noteGeneration(db, 'longshore', other, 'default', 'g')
    const raise = () => raiseEpoch(db, 'longshore', other, '100')
    expect(await begin()).toBe(false)
    expect(await raise()).toBeNull()
    const isLeader = { name: 'note_generation', guard: 'only-leader' }
    expect(await weakened(database, [isLeader], begin)).toBe(true)
    const holds = { name: 'raise_epoch', guard: 'only-leader' }
    expect(await weakened(database, [holds], raise)).toBe('101')
  })
})

describe('a process', () => {
  it('works on no schema that is newer, or that has other functions than it knows', async () => {
    await database.rows("insert into longshore.migrations (version, name) values (9999, 'of tomorrow')")
    await expect(checkDatabase(db, 'longshore')).rejects.toMatchObject({ code: 'SCHEMA_NEWER' })
    await withWeakQueries(database, { point: 'versions', insertion: 'where version < 9999' }, weak =>
      checkDatabase(weak, 'longshore'),
    )
    await database.rows('delete from longshore.migrations where version = 9999')
    const [was] = await database.rows<{ checksum: string }>(
      "select checksum from longshore.functions where name = 'settle'",
    )
    await database.rows("update longshore.functions set checksum = 'other' where name = 'settle'")
    await expect(checkDatabase(db, 'longshore')).rejects.toMatchObject({ code: 'SCHEMA_OUTDATED' })
    await withWeakQueries(
      database,
      {
        guard: 'checksum',
        replacement: `case name when 'settle' then '${was?.checksum}' else checksum end as checksum`,
      },
      weak => checkDatabase(weak, 'longshore'),
    )
    await database.rows("update longshore.functions set checksum = $1 where name = 'settle'", [was?.checksum])
    await checkDatabase(db, 'longshore')
  })

  it('works on no schema that serves only later versions', async () => {
    const [was] = await database.rows('select version, serves_from from longshore.release')
    await database.rows("update longshore.release set version = '99.0.0', serves_from = '99.0.0'")
    await expect(checkDatabase(db, 'longshore')).rejects.toMatchObject({ code: 'SCHEMA_NEWER' })
    await withWeakQueries(
      database,
      {
        guard: 'serves-from',
        replacement: "'0.0.0' as serves_from",
      },
      weak => checkDatabase(weak, 'longshore'),
    )
    await database.rows('update longshore.release set version = $1, serves_from = $2', [
      was?.['version'],
      was?.['serves_from'],
    ])
    await checkDatabase(db, 'longshore')
  })
})
