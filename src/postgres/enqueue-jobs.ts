/** The verb *enqueue*: hands new jobs to `enqueue_jobs` in one statement. */
import type { Shape, WorkflowPlace } from '../job/enqueue-options.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { textsOf } from './connect.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'

export interface NewJob extends WorkflowPlace {
  id: JobId
  queue: string
  /** JSON text: what jobs of one call have in common, see `Shape`. Equal texts travel once. */
  shape: string
  /** JSON text. */
  payload: string
  /** See `traceEnqueue`. */
  trace?: string | undefined
  /** What `shape` says, where the job is plain: see `isPlain`. */
  plain?: Shape | undefined
}

/** A job that is ready as soon as its transaction commits, and where it stands. */
export interface MadeReady {
  id: JobId
  queue: string
  lane: number
  score: string
}

export interface Enqueued {
  /** The ids that were made, or undefined where all of them are new by construction. */
  made: Set<string> | undefined
  /** Only where asked for. */
  ready: MadeReady[]
}

export const shapeText = (shape: Shape): string => JSON.stringify(shape)

/** A plain job asks for nothing: plain jobs of one shape are enqueued together, in a shorter way. */
export const isPlain = (shape: Shape): boolean =>
  shape.constraintTag === 'c:' &&
  shape.concurrencyKey === undefined &&
  shape.runAt === undefined &&
  shape.delayMs === undefined

export interface EnqueueHow {
  /** The ids may be known already, then those jobs are left alone. */
  isChecked?: boolean
  /** Say which of them are ready, for the caller to hint; the relay is not woken for them. */
  isHinted?: boolean
  /** An id of a job of another task is refused, and none of them is made. */
  isWhole?: boolean
}

/** Insert jobs. */
export async function enqueueJobs(
  db: Queryable,
  schema: string,
  jobs: NewJob[],
  { isChecked = false, isHinted = false, isWhole = false }: EnqueueHow = {},
): Promise<Enqueued> {
  const plain = isChecked ? undefined : plainShapeOf(jobs)
  if (plain) return enqueuePlain(db, schema, plain, jobs, isHinted)
  const { shapeNumbers, values } = jobArguments(jobs)
  const columns = [
    ...(isChecked ? ['made::text[] as made'] : []),
    ...(isHinted ? ['lanes', 'scores::text[] as scores', 'is_ready'] : []),
  ].join(', ')
  const workflows = jobs.some(job => job.workflow !== undefined) ? workflowArguments(jobs) : []
  const traces = traceArguments(jobs)
  const text = `select ${columns} from longshore.enqueue_jobs(
    $1::text::jsonb, $2::text::uuid[], $3::text::int[], $4, ${isChecked}, ${isHinted}${
      workflows.length > 0 ? ', $5::text::text[], $6::text::boolean[]' : ''
    }${traces === null ? '' : `, p_traces => $${workflows.length > 0 ? 7 : 5}::text::text[]`}${
      isWhole ? ', p_whole => true' : ''
    })`
  try {
    const { rows } = await db.query(inSchema(schema, text), [
      ...values,
      ...workflows,
      ...(traces === null ? [] : [traces]),
    ])
    const made = isChecked ? new Set(rows[0]?.['made'] as string[]) : undefined
    return { made, ready: isHinted ? readyOf(jobs, shapeNumbers, made, rows[0]) : [] }
  } catch (error) {
    return explainRefusal(error)
  }
}

/** The same for jobs in chunks, in their order and in one statement: nothing can come between. Returns the ids that were made. */
export async function enqueueChunks(
  db: Queryable,
  schema: string,
  chunks: readonly NewJob[][],
  how: EnqueueHow,
): Promise<Set<string> | undefined> {
  const [only] = chunks
  if (only && chunks.length === 1) return (await enqueueJobs(db, schema, only, how)).made
  const { isChecked = false, isWhole = false } = how
  const values = chunks.flatMap(jobs => [
    ...jobArguments(jobs).values,
    ...(jobs.some(job => job.workflow !== undefined) ? workflowArguments(jobs) : [null, null]),
    traceArguments(jobs),
  ])
  const rowOf = (_: unknown, chunk: number) =>
    `(${Array.from({ length: 7 }, (_, n) => `$${chunk * 7 + n + 1}::text`).join(', ')})`
  const text = `
    select made::text[] as made
    from (values ${chunks.map(rowOf).join(', ')}) as c(shapes, ids, shape_nos, payloads, workflows, halts, traces),
      longshore.enqueue_jobs(
        c.shapes::jsonb, c.ids::uuid[], c.shape_nos::int[], c.payloads, ${isChecked}, false, c.workflows::text[], c.halts::boolean[],
        p_traces => c.traces::text[], p_whole => ${isWhole})`
  const { rows } = await db.query(inSchema(schema, text), values).catch(explainRefusal)
  return isChecked ? new Set(rows.flatMap(row => row['made'] as string[])) : undefined
}

/** The plain shape that all of them have. */
function plainShapeOf(jobs: readonly NewJob[]): Shape | undefined {
  const [first] = jobs
  if (!first?.plain) return undefined
  for (const job of jobs) {
    if (job.shape !== first.shape || job.workflow !== undefined || job.trace !== undefined) return undefined
  }
  return first.plain
}

const ENQUEUE_PLAIN =
  'select lane, score from longshore.enqueue_plain($1, $2, $3, $4, $5, $6::text::uuid[], $7, $8)'

async function enqueuePlain(
  db: Queryable,
  schema: string,
  { queue, task, tag, priority, maxAttempts }: Shape,
  jobs: readonly NewJob[],
  isHinted: boolean,
): Promise<Enqueued> {
  const [row] = await textsOf(db, inSchema(schema, ENQUEUE_PLAIN), [
    queue,
    task,
    tag,
    priority,
    maxAttempts,
    `{${jobs.map(job => job.id).join(',')}}`,
    jobs.map(job => job.payload).join('\n'),
    isHinted,
  ]).catch(explainRefusal)
  const [lane, score] = row ?? []
  const place = { queue, lane: Number(lane), score: String(score) }
  return { made: undefined, ready: isHinted ? jobs.map(({ id }) => ({ id, ...place })) : [] }
}

/** What `enqueue_jobs` is told of jobs: their shapes, ids, numbers of shapes and payloads. */
export function jobArguments(jobs: readonly NewJob[]) {
  const numbers = new Map<string, number>()
  const shapeNumbers = jobs.map(job => {
    let number = numbers.get(job.shape)
    if (number === undefined) {
      number = numbers.size + 1
      numbers.set(job.shape, number)
    }
    return number
  })
  const values = [
    `[${[...numbers.keys()].join(',')}]`,
    `{${jobs.map(job => job.id).join(',')}}`,
    numbers.size === 1 ? null : `{${shapeNumbers.join(',')}}`,
    jobs.map(job => job.payload).join('\n'),
  ]
  return { shapeNumbers, values }
}

/** Null in an array is a text like any other where array_nulls is off. */
export const NONE = ''

/** The workflows of jobs, and which of them stop theirs when they fail. */
export const workflowArguments = (jobs: readonly NewJob[]): [string, string] => [
  arrayText(jobs.map(job => job.workflow ?? NONE)),
  arrayText(jobs.map(job => String(job.halts ?? false))),
]

/** The trace contexts of jobs, or null where nothing is traced. */
export const traceArguments = (jobs: readonly NewJob[]): string | null =>
  jobs.some(job => job.trace !== undefined) ? arrayText(jobs.map(job => job.trace ?? NONE)) : null

/** A list as Postgres writes it: drivers that callers bring differ in what they make of lists. */
const arrayText = (items: readonly string[]): string =>
  `{${items.map(item => `"${item.replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`

function readyOf(
  jobs: readonly NewJob[],
  shapeNumbers: readonly number[],
  made: ReadonlySet<string> | undefined,
  row: Record<string, unknown> | undefined,
): MadeReady[] {
  const {
    lanes,
    scores,
    is_ready: isReady,
  } = row as { lanes: number[]; scores: string[]; is_ready: boolean[] }
  return jobs.flatMap((job, n) => {
    const shape = (shapeNumbers[n] as number) - 1
    if (!isReady[shape] || made?.has(job.id) === false) return []
    return [{ id: job.id, queue: job.queue, lane: lanes[shape] as number, score: scores[shape] as string }]
  })
}

/** Make sure that the lanes for jobs of these shapes exist. Not for a connection inside a user's transaction. */
export async function makeLanes(db: Queryable, schema: string, shapes: readonly Shape[]): Promise<void> {
  const text = `
    select longshore.make_lane(s.queue, s.task, s.tag, s."constraintTag", coalesce(s."concurrencyKey", ''))
    from jsonb_to_recordset($1::text::jsonb) as s(queue text, task text, tag text, "constraintTag" text, "concurrencyKey" text)`
  await db.query(inSchema(schema, text), [JSON.stringify(shapes)]).catch(explainRefusal)
}
