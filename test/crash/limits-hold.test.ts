import { expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { mostAtOnce } from '../support/journal.ts'
import { tenant } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const KEYS = 8
const JOBS = 600

it('[L1] [L5] [L8] both limits hold over several processes, with retries and a kill -9 in between', async () => {
  const producer = deployment.producer({ tasks: [tenant] })
  const processes = [
    await startProcess({ lease: '2s' }),
    await startProcess({ lease: '2s' }),
    await startProcess({ lease: '2s' }),
  ]
  const refs = (
    await Promise.all(
      Array.from({ length: KEYS }, (_, key) =>
        producer.enqueueMany(
          tenant,
          Array.from({ length: JOBS / KEYS }, (_, n) => n),
          { concurrencyKey: `tenant ${key}` },
        ),
      ),
    )
  ).flat()
  const finished = async () =>
    (await database.rows<{ n: number }>('select count(*)::int as n from longshore.finished_jobs'))[0]?.n ?? 0
  await eventually('some of them are done', async () => (await finished()) > 50)
  // Whoever has slots passes them on to its own next jobs, so one process may do it all: that one is killed.
  const [busiest] = await database.rows<{ id: number }>(
    'select worker_id as id from longshore.finished_jobs group by worker_id order by count(*) desc limit 1',
  )
  await processes.find(({ id }) => id === busiest?.id)?.kill()
  await startProcess({ lease: '2s' })
  await eventually('all of them are done', async () => (await finished()) === JOBS, 50_000)

  await deployment.atRest({ enqueued: refs })
  const runs = await deployment.runs()
  expect(mostAtOnce(runs)).toBe(6)
  for (let key = 0; key < KEYS; key++) {
    expect(mostAtOnce(runs.filter(run => run.key === `tenant ${key}`))).toBeLessThanOrEqual(2)
  }
  // Several processes took part, and each job has one end.
  expect(new Set(runs.map(run => run.worker)).size).toBeGreaterThanOrEqual(2)
  const ends = runs.filter(run => run.wentTo === 'ended')
  expect(new Set(ends.map(run => run.jobId))).toEqual(new Set(refs.map(ref => ref.id)))
  expect(ends).toHaveLength(JOBS)
})
