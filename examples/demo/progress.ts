/** Live progress: one line that is rewritten on a terminal, one line per note in a pipe. */
import type pg from 'pg'

export interface Progress {
  /** Say what was just done, with the counts of that moment. */
  note(text: string): Promise<void>
  /** The most jobs of a task that were seen running at one moment. */
  mostRunning(task: string): number
  stop(): void
}

const LOOK_MS = 50

export function showProgress(client: pg.Client): Progress {
  const isTerminal = process.stdout.isTTY === true
  const most = new Map<string, number>()
  let last: Promise<unknown> = Promise.resolve()

  const counts = async () => {
    const { rows } = await client.query<{ state: string; n: number }>(
      `select state::text, count(*)::int as n from longshore.jobs group by 1
       union all select state::text, count(*)::int from longshore.finished_jobs group by 1`,
    )
    return rows.map(row => `${row.n} ${row.state}`).join(', ') || 'no jobs yet'
  }

  const look = async () => {
    const { rows } = await client.query<{ task: string; n: number }>(
      `select l.task, count(*)::int as n from longshore.jobs j join longshore.lanes l on l.id = j.lane
       where j.state = 'running' group by 1`,
    )
    for (const { task, n } of rows) most.set(task, Math.max(n, most.get(task) ?? 0))
    if (isTerminal) process.stdout.write(`\r\u001b[K  ${await counts()}`)
  }

  const timer = setInterval(() => {
    last = last.then(look)
  }, LOOK_MS)

  return {
    async note(text) {
      await last
      process.stdout.write(
        `${isTerminal ? '\r\u001b[K' : ''}${text}\n${isTerminal ? '' : `  ${await counts()}\n`}`,
      )
    },
    mostRunning: task => most.get(task) ?? 0,
    stop() {
      clearInterval(timer)
      if (isTerminal) process.stdout.write('\r\u001b[K')
    },
  }
}
