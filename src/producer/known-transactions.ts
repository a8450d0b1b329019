/** Owns what people give as `tx` that is no client: how each is known by its shape, and the line that works instead. */

interface KnownTransaction {
  name: string
  isIt(given: Given): boolean
  /** What to give as `tx`. */
  instead: string
}

type Given = Readonly<Record<string, unknown>>

const has = (given: Given, ...names: string[]) => names.every(name => name in given)
const calls = (given: Given, ...names: string[]) => names.every(name => typeof given[name] === 'function')

const KNOWN: readonly KnownTransaction[] = [
  {
    name: 'a Prisma transaction',
    isIt: given => calls(given, '$queryRawUnsafe'),
    instead: '{ query: async (text, values = []) => ({ rows: await tx.$queryRawUnsafe(text, ...values) }) }',
  },
  {
    name: 'a TypeORM QueryRunner',
    isIt: given => has(given, 'isTransactionActive'),
    instead: '{ query: async (text, values) => ({ rows: await queryRunner.manager.query(text, values) }) }',
  },
  {
    name: 'a TypeORM DataSource',
    isIt: given => calls(given, 'createQueryRunner'),
    instead:
      'the manager of dataSource.transaction(async manager => …), as { query: async (text, values) => ({ rows: await manager.query(text, values) }) }',
  },
  {
    name: 'a TypeORM EntityManager',
    isIt: given => calls(given, 'query', 'getRepository'),
    instead: '{ query: async (text, values) => ({ rows: await manager.query(text, values) }) }',
  },
  {
    name: 'a MikroORM EntityManager',
    isIt: given => calls(given, 'getTransactionContext', 'isInTransaction'),
    instead:
      'em.getTransactionContext(), as { query: (text, values) => em.getTransactionContext().executeQuery(CompiledQuery.raw(text, values)) } with CompiledQuery of kysely',
  },
  {
    name: 'a Kysely transaction',
    isIt: given => calls(given, 'executeQuery', 'selectFrom'),
    instead:
      '{ query: (text, values) => trx.executeQuery(CompiledQuery.raw(text, values)) } with CompiledQuery of kysely',
  },
  {
    name: 'a Knex transaction',
    isIt: given => typeof given === 'function' && calls(given, 'raw') && has(given, 'client'),
    instead: 'await trx.client.acquireConnection(), which is its pg client',
  },
  {
    name: 'a postgres.js transaction',
    isIt: given => typeof given === 'function' && calls(given, 'unsafe'),
    instead: '{ query: async (text, values) => ({ rows: await sql.unsafe(text, values) }) }',
  },
  {
    name: 'a Drizzle transaction',
    isIt: given => calls(given, 'execute') && has(given, 'session', 'dialect'),
    instead: 'tx.session.client, which is its pg client',
  },
  {
    name: 'a pg-promise task',
    isIt: given => calls(given, 'oneOrNone', 'result'),
    instead: '{ query: (text, values) => t.result(text, values) }',
  },
  {
    name: 'a pool',
    isIt: given => has(given, 'totalCount'),
    instead: 'the client of `await pool.connect()`, on which your transaction begins and ends',
  },
]

/** What this is, if it is known and is no client. */
export const knownTransaction = (given: object): Pick<KnownTransaction, 'name' | 'instead'> | undefined =>
  KNOWN.find(known => known.isIt(given as Given))
