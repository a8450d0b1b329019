/** The build graph of the demo: one branch of it fails, the others go on. */
import type { FinishedGroupState, GroupJob, JobState, Producer } from 'longshore'
import { compile, doStep, link } from './tasks.ts'

export interface Build {
  jobs: GroupJob[]
  /** Resolves when all of it has ended, with the state of each job by its name. */
  end(): Promise<{ state: FinishedGroupState; states: Record<string, JobState | undefined> }>
}

/**
 * compile a, b, c → link → test → package
 *                       └→ document             … and clean up after all of them, whatever happens.
 */
export async function submitBuild(producer: Producer): Promise<Build> {
  const group = producer.group({ name: 'build' })
  const sources = ['a', 'b', 'c']
  const compiled = sources.map(source => group.add(compile, { source }))
  const linked = group.add(link, null, { after: compiled })
  const tested = group.add(doStep, { step: 'test' }, { after: linked })
  const packed = group.add(doStep, { step: 'package' }, { after: tested })
  const documented = group.add(doStep, { step: 'document' }, { after: linked })
  const steps = [...compiled, linked, tested, packed, documented]
  const cleaned = group.add(
    doStep,
    { step: 'clean up' },
    { after: steps.map(job => ({ job, onFailure: 'run' })) },
  )
  await group.submit()

  const jobs = [...steps, cleaned]
  const names = ['compile a', 'compile b', 'compile c', 'link', 'test', 'package', 'document', 'clean up']
  return {
    jobs,
    async end() {
      const { state } = await producer.waitForGroup(group, { timeout: '60s' })
      const seen = await Promise.all(jobs.map(job => producer.get(job)))
      return { state, states: Object.fromEntries(names.map((name, n) => [name, seen[n]?.state])) }
    },
  }
}
