/** Live progress: one line that is rewritten on a terminal, one line per note in a pipe. */
import type pg from 'pg'

export interface Progress {
  /** Say what was just done, with the counts of that moment. */
  note(text: string): Promise<void>
  stop(): void
}

export function showProgress(client: pg.Client): Progress {
  const isTerminal = process.stdout.isTTY === true
  let last: Promise<unknown> = Promise.resolve()

  const counts = async () => {
    const { rows } = await client.query<{ state: string; n: number }>(
      `select state::text, count(*)::int as n from longshore.jobs group by 1
       union all select state::text, count(*)::int from longshore.finished_jobs group by 1`,
    )
    return rows.map(row => `${row.n} ${row.state}`).join(', ') || 'no jobs yet'
  }

  const timer = isTerminal
    ? setInterval(() => {
        last = last.then(async () => process.stdout.write(`\r\u001b[K  ${await counts()}`))
      }, 100)
    : undefined

  return {
    async note(text) {
      await last
      process.stdout.write(
        `${isTerminal ? '\r\u001b[K' : ''}${text}\n${isTerminal ? '' : `  ${await counts()}\n`}`,
      )
    },
    stop() {
      clearInterval(timer)
      if (isTerminal) process.stdout.write('\r\u001b[K')
    },
  }
}
