/**
 * Owns `tx`, a connection inside a transaction of the caller: what is refused because it is none, and how a statement gets into that
 * transaction or nowhere. Each is handed over before anything is waited for: whatever the caller sends next, a commit above all, comes
 * after it, also when the caller forgot to wait.
 *
 * A client that says it is in a transaction is believed. Where it cannot say, where statements are under way that may begin or end one,
 * or where the statement can only be sent later, a *mark* is put into the transaction at the call, and the statement demands it.
 */
import { readGiven } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'
import { newJobId } from '../job/job-id.ts'
import type { Queryable, Transaction } from '../job/queryable.ts'
import { shown } from '../job/shown.ts'
import { explainDenied } from '../postgres/denied.ts'
import { explainRefusal } from '../postgres/refused.ts'
import { inSchema } from '../postgres/schema-name.ts'
import { knownTransaction } from './known-transactions.ts'

export interface InTransaction {
  /** Your own client, inside your transaction: it happens if and when that commits. */
  tx?: Transaction | undefined
}

const MARK =
  "select set_config('longshore_tx.marks', concat(current_setting('longshore_tx.marks', true), ' ', $1::text), true)"

/** What sends statements in that transaction. `isSentLater`: the caller may have ended it by then. */
export function joinTransaction(tx: unknown, schema: string, isSentLater: boolean): Queryable {
  const { client, status } = readGiven('TRANSACTION_INVALID', 'tx', () => {
    const client = toClient(tx)
    return { client, status: statusOf(client) }
  })
  if (status === 'I')
    refuse(
      '`tx` is in no transaction, so nothing would be undone with what you do beside: `await client.query("begin")` first, or leave `tx` out',
    )
  if (status === 'E') refuse(FAILED)
  if (status === 'T' && !isSentLater) return { query: (text, values) => ask(client, text, values) }

  const mark = newJobId()
  const need = inSchema(schema, `longshore.need_transaction('${mark}')`)
  let marking: Promise<unknown> | undefined
  const putMark = () => {
    marking ??= ask(client, MARK, [mark])
    marking.catch(() => undefined) // the sender of a statement is told
    return marking
  }
  if (isSentLater) putMark()
  return {
    async query(text, values) {
      const marked = putMark()
      const asked = ask(client, `select q.* from (${text}) q where ${need}`, values)
      const [first] = await Promise.allSettled([marked, asked])
      if (first.status === 'rejected') throw first.reason
      return asked.catch(explainRefusal)
    },
  }
}

const FAILED =
  'the transaction of `tx` has failed (Postgres: current transaction is aborted), so nothing can be added to it: roll it back'
const IN_FAILED_TRANSACTION = '25P02'

const refuse = (message: string, cause?: unknown): never => {
  throw new LongshoreError('TRANSACTION_INVALID', message, cause === undefined ? {} : { cause })
}

function toClient(tx: unknown): Transaction {
  const isThing = (typeof tx === 'object' && tx !== null) || typeof tx === 'function'
  const known = isThing ? knownTransaction(tx) : undefined
  if (known)
    refuse(
      `\`tx\` must be the one client that your transaction runs on; ${known.name} is not: give ${known.instead}`,
    )
  if (isThing && typeof (tx as Transaction).query === 'function') return tx as Transaction
  return refuse(
    `\`tx\` must be the one client that your transaction runs on, with a method query(text, values); got ${shown(tx)}`,
  )
}

/** Undefined where it cannot be told. A client of `pg` knows what Postgres said last, which says nothing of what is under way. */
function statusOf(client: Transaction): string | null | undefined {
  if ('readyForQuery' in client && client.readyForQuery !== true) return undefined
  return typeof client.getTransactionStatus === 'function' ? client.getTransactionStatus() : undefined
}

async function sendIn(client: Transaction, text: string, values: unknown[] | undefined) {
  try {
    return await client.query(text, values)
  } catch (error) {
    if ((error as { code?: unknown } | undefined)?.code === IN_FAILED_TRANSACTION) refuse(FAILED, error)
    return explainDenied(error, text)
  }
}

async function ask(client: Transaction, text: string, values: unknown[] | undefined) {
  const answer: unknown = await sendIn(client, text, values)
  if (Array.isArray((answer as { rows?: unknown } | undefined)?.rows))
    return answer as { rows: Record<string, unknown>[] }
  const got = Array.isArray(answer)
    ? 'its query returned the rows themselves: give { query: async (text, values) => ({ rows: await tx.query(text, values) }) }'
    : `its query must return { rows }; got ${shown(answer)}`
  return refuse(
    `\`tx\` is not as a client of pg: ${got}. A statement has been sent already, so roll your transaction back`,
  )
}
