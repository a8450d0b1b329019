/**
 * The check of requirement X10, pure: samples of the truth go in, and the first job that waits for longer than it may comes out.
 *
 * Each sample is given to an ideal scheduler: it goes through the jobs that could start, best first, and gives each a free permit of a
 * worker that may run it and a slot of each of its limits. The clock of a job that gets them all runs on, for it should have begun;
 * that of every other job begins anew, for something explains why it waits.
 *
 * A permit or slot that is taken explains nothing if it went to a worse job while this one waited for it: that is how a job starves
 * beside a limit that is always full. So the bound must be longer than any run that may overtake a job in the moment in which it comes.
 */
import { inWords, type JobPlan, mayRun, type Serves, type TaskPlan } from './plan.ts'

/** What was true at one moment. */
export interface Sample {
  /** By Postgres's clock. */
  atMs: number
  /** All that have not ended. */
  jobs: readonly SeenJob[]
  /** Those that run, drained or not. */
  workers: readonly SeenWorker[]
}

export interface SeenJob extends JobPlan {
  id: string
  score: number
  state: 'waiting' | 'scheduled' | 'ready' | 'running'
  dueAtMs: number
  /** Parents that have not ended, and one more while another job of its workflow has the turn. */
  waitsFor: number
  /** Where it runs, and since when. */
  worker?: string
  startedAtMs?: number
  /** The handler has begun this run. */
  isBegun: boolean
}

export interface SeenWorker extends Serves {
  name: string
  permits: number
  isDrained: boolean
  /** The jobs that its handlers are in. */
  inside: readonly string[]
}

/** A job that should have begun. */
export interface Stall {
  job: SeenJob
  forMs: number
  why: string
}

export interface Watch {
  /** Answers the job that has waited longest, if that is longer than it may. */
  see(sample: Sample): Stall | undefined
  /** Jobs that should have begun by the last sample. */
  readonly waiting: readonly Stall[]
  /** How long any job has waited without an explanation. */
  readonly longestMs: number
}

/** A limit or a worker: so many at once. */
interface Resource {
  name: string
  capacity: number
  holders: Holder[]
  /** What the ideal scheduler has given away of it. */
  given: number
}

interface Holder {
  id: string
  score: number
  startedAtMs: number
}

interface Wait {
  forMs: number
  /** Since when the job has lacked this resource and nothing else. */
  since: Map<string, number>
}

export function createWatch(options: {
  tasks: readonly TaskPlan[]
  /** How long a job may wait without an explanation. */
  boundMs: number
  /** The time between two samples counts up to here: on a machine that stands still nobody waits. */
  mostStepMs: number
}): Watch {
  const tasks = new Map(options.tasks.map(task => [task.name, task]))
  let waits = new Map<string, Wait>()
  let lastMs: number | undefined
  let longestMs = 0
  let waiting: Stall[] = []

  return {
    see(sample) {
      const stepMs = Math.min(sample.atMs - (lastMs ?? sample.atMs), options.mostStepMs)
      lastMs = sample.atMs
      const resources = resourcesOf(sample, tasks)
      const before = waits
      waits = new Map()
      waiting = []
      for (const job of [...sample.jobs].sort(inOrder)) {
        const wait = before.get(job.id) ?? { forMs: 0, since: new Map() }
        const why = judge(job, wait, sample, resources)
        if (job.state !== 'running') waits.set(job.id, wait)
        if (why === undefined) {
          wait.forMs = 0
          continue
        }
        waits.set(job.id, wait)
        wait.forMs += stepMs
        longestMs = Math.max(longestMs, wait.forMs)
        waiting.push({ job, forMs: wait.forMs, why })
      }
      const [worst] = [...waiting].sort((a, b) => b.forMs - a.forMs)
      return worst && worst.forMs > options.boundMs ? worst : undefined
    },
    get waiting() {
      return waiting
    },
    get longestMs() {
      return longestMs
    },
  }
}

/** Answers why this job should have begun; undefined when something explains that it has not, or it has. */
function judge(
  job: SeenJob,
  wait: Wait,
  sample: Sample,
  resources: ReadonlyMap<string, Resource>,
): string | undefined {
  if (job.state === 'running') {
    if (sample.workers.some(worker => worker.inside.includes(job.id))) return undefined
    return job.isBegun ? `it ended on ${job.worker} and is not settled` : `${job.worker} has not begun it`
  }
  if (job.waitsFor > 0 || job.dueAtMs > sample.atMs) return undefined

  const limits = limitsOf(job).flatMap(name => resources.get(name) ?? [])
  const able = sample.workers
    .filter(worker => !worker.isDrained && mayRun(worker, job))
    // The one that can do least first: the others are left for jobs that need them.
    .sort((a, b) => ability(a) - ability(b))
    .map(worker => resources.get(workerKey(worker.name)) as Resource)
  const isFree = (resource: Resource) => free(resource, job, sinceOf(wait, resource, sample.atMs)) > 0
  const full = limits.filter(limit => !isFree(limit))
  const worker = able.find(isFree)

  // A slot counts as lost to a worse job only while the job lacks nothing else. The same for a permit.
  for (const limit of limits)
    if (!worker || full.some(other => other !== limit)) wait.since.set(limit.name, sample.atMs)
  for (const one of able) if (full.length > 0) wait.since.set(one.name, sample.atMs)
  const names = new Set([...limits, ...able].map(resource => resource.name))
  for (const name of wait.since.keys()) if (!names.has(name)) wait.since.delete(name)

  if (!worker || full.length > 0) return undefined
  for (const resource of [...limits, worker]) resource.given++
  const notReady = job.state === 'ready' ? [] : [`it is due, and nothing that it waits for is open`]
  const lost = [...limits, worker].flatMap(resource => {
    const worse = overtakers(resource, job, sinceOf(wait, resource, sample.atMs))
    if (worse.length === 0) return []
    return [`${resource.name} went to ${worse.map(holder => holder.id).join(', ')}, behind it in the order`]
  })
  const room = lost.length > 0 ? [] : ['every limit has room']
  return [...notReady, `${worker.name} could run it`, ...lost, ...room].join('; ')
}

/** Since when the job lacks this and nothing else. */
function sinceOf(wait: Wait, resource: Resource, nowMs: number): number {
  const known = wait.since.get(resource.name)
  if (known !== undefined) return known
  wait.since.set(resource.name, nowMs)
  return nowMs
}

const free = (resource: Resource, job: SeenJob, sinceMs: number) =>
  resource.capacity - resource.given - resource.holders.length + overtakers(resource, job, sinceMs).length

const overtakers = (resource: Resource, job: SeenJob, sinceMs: number) =>
  resource.holders.filter(holder => holder.startedAtMs > sinceMs && inOrder(job, holder) < 0)

function resourcesOf(sample: Sample, tasks: ReadonlyMap<string, TaskPlan>): Map<string, Resource> {
  const resources = new Map<string, Resource>()
  const add = (name: string, capacity: number) => {
    const resource = resources.get(name) ?? { name, capacity, holders: [], given: 0 }
    resources.set(name, resource)
    return resource
  }
  for (const worker of sample.workers) add(workerKey(worker.name), worker.permits)
  for (const job of sample.jobs) {
    const task = tasks.get(job.task)
    const held = [
      ...(task?.concurrency === undefined ? [] : [add(taskKey(job), task.concurrency)]),
      ...(task?.concurrencyPerKey === undefined || job.key === undefined
        ? []
        : [add(keyKey(job), task.concurrencyPerKey)]),
      ...(job.worker === undefined ? [] : [resources.get(workerKey(job.worker)) ?? []].flat()),
    ]
    if (job.state !== 'running') continue
    const { id, score, startedAtMs = sample.atMs } = job
    for (const resource of held) resource.holders.push({ id, score, startedAtMs })
  }
  // A handler that is still inside although its job has ended keeps its permit.
  for (const worker of sample.workers) {
    const resource = resources.get(workerKey(worker.name)) as Resource
    for (const id of worker.inside)
      if (!resource.holders.some(holder => holder.id === id))
        resource.holders.push({ id, score: -1, startedAtMs: 0 })
  }
  return resources
}

const workerKey = (name: string) => `worker ${name}`
const taskKey = (job: JobPlan) => `limit of ${job.task}`
const keyKey = (job: JobPlan) => `limit of ${job.task} for key ${job.key}`
const limitsOf = (job: JobPlan) => [taskKey(job), ...(job.key === undefined ? [] : [keyKey(job)])]

const ability = ({ tasks, queues, tags, properties }: Serves) =>
  tasks.length + queues.length + tags.length + Object.keys(properties).length

const inOrder = (a: { score: number; id: string }, b: { score: number; id: string }) =>
  a.score - b.score || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)

export const stallInWords = ({ job, forMs, why }: Stall) =>
  `job ${job.id} (${inWords(job)}; ${job.state}) has waited for ${(forMs / 1000).toFixed(1)} s without an explanation: ${why}`
