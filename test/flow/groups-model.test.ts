/**
 * Groups and workflows against the model of their rules, over random histories. `LONGSHORE_SEED` repeats them, `LONGSHORE_RUNS` says how
 * many.
 */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createProducer, type Producer } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { type Command, history, historyTasks, runHistory } from '../support/group-history.ts'
import { type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const given = process.env['LONGSHORE_RUNS']
const RUNS = Number(given ?? 12)
const SEED = Number(process.env['LONGSHORE_SEED'] ?? randomInt(2 ** 31))
/** On slow machines. */
const ENOUGH_MS = 15_000
let producer: Producer
let ran = 0
let last: Promise<void> | undefined

beforeAll(() => {
  producer = createProducer({ postgres: database.url, tasks: historyTasks })
})
afterAll(() => producer.close())

const property = fc.asyncProperty(history, async commands => {
  last = runHistory(database, producer, commands)
  await last
  ran++
})

describe('random histories of groups', () => {
  it('[S11] every group ends as its jobs and policies say, or waits for a workflow that was stopped', async () => {
    const began = performance.now()
    await fc.assert(property, {
      seed: SEED,
      numRuns: RUNS,
      ...(given === undefined ? { interruptAfterTimeLimit: ENOUGH_MS } : {}),
    })
    await last // the time limit leaves one behind
    process.stdout.write(
      `[S11] ${ran} histories in ${Math.round(performance.now() - began)} ms, LONGSHORE_SEED=${SEED}\n`,
    )
    expect(ran).toBeGreaterThan(0)
  }, 3_600_000)

  const job = { isTight: false, parents: [], halts: false }
  const faults: { fault: string; weakness: Weakness; commands: Command[]; problem: string }[] = [
    {
      fault: 'a stopped workflow goes on',
      weakness: {
        name: 'pass_on',
        remove: 'where w.id = any (v_workflows) and w.halted_by is null;',
        replacement: 'where w.id = any (v_workflows);',
      },
      commands: [
        { do: 'enqueue', workflow: 'v', halts: true },
        { do: 'enqueue', workflow: 'v', halts: false },
        { do: 'claim', worker: 0, limit: 1 },
        { do: 'settle', worker: 0, runs: [{ pick: 0, outcome: 'failed' }] },
      ],
      problem: 'command 4, settle: job 2 of workflow v is ready, and should be waiting',
    },
    {
      fault: 'parents that end together count as one',
      weakness: { name: 'pass_on', remove: 'count(*) as steps', replacement: '1 as steps' },
      commands: [
        {
          do: 'submit',
          jobs: [job, job, { ...job, parents: [0, 1].map(pick => ({ pick, policy: 'fail' as const })) }],
        },
        { do: 'claim', worker: 0, limit: 2 },
        { do: 'settle', worker: 0, runs: [0, 1].map(pick => ({ pick, outcome: 'succeeded' as const })) },
      ],
      problem: 'command 3, settle: job 3 is waiting, and should be ready',
    },
    {
      fault: 'whom an edge cancels fails',
      weakness: {
        name: 'pass_on',
        remove: "case e.policy when 'cancel' then 'cancelled' else",
        replacement: "case when false then 'cancelled' else",
      },
      commands: [
        { do: 'submit', jobs: [job, { ...job, parents: [{ pick: 0, policy: 'cancel' }] }] },
        { do: 'cancel job', job: 0 },
      ],
      problem: 'command 2, cancel job: job 2 is dependency_failed, and should be cancelled',
    },
  ]
  it.each(faults)('would be found: $fault', async ({ weakness, commands, problem }) => {
    await runHistory(database, producer, commands)
    await weakened(database, [weakness], () =>
      expect(runHistory(database, producer, commands)).rejects.toThrow(problem),
    )
  })
})
