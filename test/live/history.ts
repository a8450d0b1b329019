/** What happened to a fleet, to find out why a job stalled: who did what when, and what Postgres says of it. */
import type { JobRef, Producer } from '../../src/index.ts'
import type { JournalRun } from '../support/journal.ts'
import { type FleetPlan, inWords } from './plan.ts'
import { type Sample, type Stall, stallInWords } from './watch.ts'

export interface History {
  add(what: string): void
  enqueued(load: number, jobs: readonly JobRef[]): void
  /** The load that a job came with. */
  loadOf(jobId: string): number | undefined
  /** Everything, as the error of a test. */
  of(
    stall: Stall,
    sample: Sample,
    ask: {
      producer: Producer
      runs: () => Promise<JournalRun[]>
      /** Rows of Postgres, as texts. */
      rows: () => Promise<string[]>
    },
  ): Promise<Error>
}

/** Lines of what happened last, beside all those of the job itself. */
const LAST_LINES = 60

export function createHistory(plan: FleetPlan): History {
  const began = Date.now()
  const lines: { atMs: number; what: string }[] = []
  const loads = new Map<string, number>()
  /** A job by its load and its number in it: `2#13`. */
  const names = new Map<string, string>()
  const counts = new Map<number, number>()

  return {
    add(what) {
      lines.push({ atMs: Date.now(), what })
    },
    enqueued(load, jobs) {
      for (const { id } of jobs) {
        const number = (counts.get(load) ?? 0) + 1
        counts.set(load, number)
        names.set(id, `${load}#${number}`)
        loads.set(id, load)
      }
      const ids = jobs.map(({ id }) => id).join(' ')
      lines.push({ atMs: Date.now(), what: `enqueued: ${ids}` })
    },
    loadOf: jobId => loads.get(jobId),
    async of(stall, sample, { producer, runs, rows }) {
      const { job } = stall
      const claims = (await runs()).flatMap(({ worker, jobId, startedAt, endedAt, wentTo }) => [
        { atMs: startedAt / 1000, what: `Postgres: worker ${worker} claims ${jobId}` },
        ...(endedAt === undefined
          ? []
          : [{ atMs: endedAt / 1000, what: `Postgres: ${jobId} of worker ${worker} goes to ${wentTo}` }]),
      ])
      const all = [...lines, ...claims].sort((a, b) => a.atMs - b.atMs)
      const last = new Set(all.slice(-LAST_LINES))
      const shown = all.filter(line => last.has(line) || line.what.includes(job.id))
      const explanation = await producer.explain(job.id)
      const text = [
        stallInWords(stall),
        'explain:',
        `  ${explanation?.summary ?? 'there is no such job'}`,
        ...(explanation?.reasons ?? []).map(reason => `  ${reason.kind}: ${reason.sentence}`),
        'workers:',
        ...sample.workers.map(
          ({ name, inside, permits, isDrained }) =>
            `  ${name}: ${inside.length} of ${permits} permits in use${isDrained ? ', drained' : ''}`,
        ),
        'jobs that have not ended:',
        ...countsOf(sample).map(line => `  ${line}`),
        'rows of Postgres:',
        ...(await rows()).map(row => `  ${row}`),
        `history, jobs as <load>#<number> (all of this job, the last ${LAST_LINES} lines of everything):`,
        ...shown.map(({ atMs, what }) => `  ${((atMs - began) / 1000).toFixed(3).padStart(8)} s  ${what}`),
        'fleet:',
        ...fleetInWords(plan).map(line => `  ${line}`),
      ].join('\n')
      return new Error(text.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, id => names.get(id) ?? id))
    },
  }
}

function countsOf({ jobs }: Sample): string[] {
  const counts = new Map<string, number>()
  for (const job of jobs) {
    const key = `${job.state}: ${inWords(job)}`
    counts.set(key, (counts.get(key) ?? 0) + 1)
  }
  return [...counts].map(([what, count]) => `${count} ${what}`)
}

const fleetInWords = ({ tasks, workers, loads }: FleetPlan): string[] => [
  ...tasks.map(task => `task ${JSON.stringify(task)}`),
  ...workers.map(worker => `worker ${JSON.stringify(worker)}`),
  ...loads.map((load, number) => `load ${number} ${JSON.stringify(load)}`),
]
