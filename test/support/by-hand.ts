/** A worker that is only a row: its claims and settles are made by the test, step by step. */
import { constraintTags } from '../../src/job/constraints.ts'
import type { TestDatabase } from './database.ts'

export interface Claimed {
  id: string
  lease_token: string
  payload: unknown
  attempts: number
}

export interface Settling {
  id: string
  token: string
}

/** The jobs of a claim as rows: `call` selects from `longshore.claim` or `settle_and_claim`, whose answer is one row of joined texts. */
export const claimedRows = (call: string): string => `
  select u.id::uuid, split_part(t.tokens, ',', u.no::int) as lease_token, u.attempts::int, u.score, u.payload::jsonb
  from (${call}) c
  cross join lateral (
    select string_agg(repeat(split_part(r.run, '*', 1) || ',', split_part(r.run, '*', 2)::int), '' order by r.no) as tokens
    from unnest(string_to_array(c.lease_tokens, ',')) with ordinality as r(run, no)
  ) t
  cross join lateral unnest(string_to_array(c.ids, ','), string_to_array(c.attempts, ','), string_to_array(c.scores, ','),
    string_to_array(c.payloads, E'\\n')) with ordinality as u(id, attempts, score, payload, no)
  order by u.no`

interface Client {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>
}

export async function workByHand(
  database: TestDatabase,
  tasks: string[],
  tags = ['default'],
  properties: Record<string, string> = {},
) {
  const [row] = await database.rows<{ id: number }>(
    `insert into longshore.workers (name, queues, tasks, tags, properties, constraint_tags)
     values ('by hand', '{default}', $1, $2, $3, $4) returning id`,
    [tasks, tags, properties, constraintTags(properties)],
  )
  const id = row?.id as number
  const on = async <Row>(client: Client | undefined, text: string, values: unknown[]) =>
    client ? ((await client.query(text, values)).rows as Row[]) : database.rows<Row>(text, values)

  const settle = async (client: Client | undefined, outcomes: unknown[]) => {
    const [answer] = await on<{ busy: string | null; lost: string | null }>(
      client,
      'select busy, lost from longshore.settle_and_claim($1, $2, $3, $4, $5, 0)',
      [id, ...outcomes],
    )
    const told = (ids: string | null | undefined, said: string) =>
      (ids?.split(',') ?? []).map(job => ({ id: job, answer: said }))
    return [...told(answer?.busy, 'busy'), ...told(answer?.lost, 'lost')]
  }

  return {
    id,
    claim: (limit: number, client?: Client) =>
      on<Claimed>(client, claimedRows('select * from longshore.claim($1, $2)'), [id, limit]),
    /** What the claim says beside its jobs: dead, busy, more, full, or nothing. */
    answer: async (limit: number, client?: Client) =>
      (await on<{ wait: string | null }>(client, 'select wait from longshore.claim($1, $2)', [id, limit]))[0]
        ?.wait ?? undefined,
    /** Successes; answers only for what was not settled. */
    settle: (jobs: Settling[], client?: Client, results: object | null = null) => {
      const sorted = [...jobs].sort((a, b) => (a.id < b.id ? -1 : 1))
      return settle(client, [sorted.map(job => job.id), sorted.map(job => job.token), results, null])
    },
    settleOthers: (others: object[], client?: Client) =>
      settle(client, ['{}', '{}', null, JSON.stringify(others)]),
  }
}

export const settling = (claimed: Claimed): Settling => ({ id: claimed.id, token: claimed.lease_token })
