/** Hot statements are prepared once for each connection; a pooler may hand out connections that do not have them. */
import { afterEach, describe, expect, it } from 'vitest'
import { openPool, type Pool } from '../../src/postgres/connect.ts'
import { useDatabase } from '../support/database.ts'

const database = useDatabase()
const pools: Pool[] = []
afterEach(async () => {
  await Promise.all(pools.splice(0).map(pool => pool.end()))
})
/** One connection, so that what is done to it is done to the next call. */
const open = () => {
  const pool = openPool(database.url, 1, () => undefined)
  pools.push(pool)
  return pool
}
const ASK = 'select $1::int + 1'
const prepared = async (pool: Pool) =>
  (await pool.query("select name, statement from pg_prepared_statements where statement like 'select $1%'"))
    .rows

describe('a hot statement', () => {
  it('is prepared at its first call, under one name in every process', async () => {
    const [pool, other] = [open(), open()]
    for (let n = 0; n < 3; n++) expect(await pool.queryTexts(ASK, [n])).toEqual([[String(n + 1)]])
    await other.queryTexts(ASK, [1])
    expect(await prepared(pool)).toHaveLength(1)
    expect(await prepared(pool)).toEqual(await prepared(other))
  })

  it('[X7] is asked without a name where the connection has forgotten it', async () => {
    const pool = open()
    await pool.queryTexts(ASK, [1])
    await pool.query('deallocate all')
    expect(await pool.queryTexts(ASK, [2])).toEqual([['3']])
    expect(await pool.queryTexts(ASK, [3])).toEqual([['4']])
    expect(await prepared(pool)).toEqual([])
  })

  it('[X7] is asked without a name where somebody else has prepared it on this connection', async () => {
    const [pool, other] = [open(), open()]
    await other.queryTexts(ASK, [1])
    const [{ name } = { name: '' }] = await prepared(other)
    await pool.query(`prepare "${name}" (int) as select 0`)
    expect(await pool.queryTexts(ASK, [2])).toEqual([['3']])
  })

  it('is asked anew when what it calls answers with other columns', async () => {
    const pool = open()
    const make = (columns: string) =>
      pool.query(`drop function if exists public.answer; create function public.answer(p int)
        returns table (${columns}) language sql as 'select ${columns.replaceAll(/(\w+) int/g, '1')}'`)
    await make('a int')
    expect(await pool.queryTexts('select * from public.answer($1)', [1])).toEqual([['1']])
    await make('a int, b int')
    expect(await pool.queryTexts('select * from public.answer($1)', [1])).toEqual([['1', '1']])
  })

  it('is told its own errors', async () => {
    await expect(open().queryTexts('select 1 / $1::int', [0])).rejects.toMatchObject({ code: '22012' })
  })
})
