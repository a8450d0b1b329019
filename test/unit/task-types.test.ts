/** What the types of tasks say, where a schema gives them and where a person does. `tsc` checks it; there is nothing to run. */
import { expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  defineTask,
  type FinishedJob,
  type GroupBuilder,
  type JobContext,
  type Producer,
  type Task,
  type ThreadHandler,
} from '../../src/index.ts'

const producer = {} as Producer
const resultOf = <Result>(job: FinishedJob<Result>) => {
  if (job.state !== 'succeeded') throw new Error(job.state)
  return job.result
}
/** Never called: only its types matter. */
const never = (_: () => unknown) => undefined

/** Each side of both schemas is another type. */
const transforming = defineTask({
  name: 'transforming',
  payload: z.object({ at: z.iso.date().transform(text => new Date(text)) }),
  result: z.object({ id: z.number().transform(String) }),
})

it('a task needs no type arguments where it has schemas', () => {
  expectTypeOf(transforming).toEqualTypeOf<
    Task<{ at: Date }, { id: string }, { at: string }, { id: number }>
  >()
  transforming.handle(job => {
    expectTypeOf(job.payload).toEqualTypeOf<{ at: Date }>()
    return { id: 1 }
  })
  // @ts-expect-error a handler returns what the schema takes, not what it makes of it
  transforming.handle(() => ({ id: '1' }))
  never(async () => {
    const job = await producer.enqueue(transforming, { at: '2030-01-01' })
    expectTypeOf(resultOf(await producer.waitFor(job))).toEqualTypeOf<{ id: string }>()
    // @ts-expect-error what is enqueued is what the schema takes
    await producer.enqueue(transforming, { at: new Date() })
  })
})

it('a task without schemas needs its payload, and its result where that matters', () => {
  const mail = defineTask<{ to: string }>({ name: 'mail' })
  expectTypeOf(mail).toEqualTypeOf<Task<{ to: string }>>()
  const sum = defineTask<number[], number>({ name: 'sum' })
  expectTypeOf(sum).toEqualTypeOf<Task<number[], number>>()
  sum.handle(({ payload }) => payload.length)
  sum.handle(async ({ payload }) => payload.length)
  // @ts-expect-error the result is a number
  sum.handle(() => 'many')
  never(async () => {
    expectTypeOf(resultOf(await producer.waitFor(await producer.enqueue(sum, [1])))).toEqualTypeOf<number>()
    const [first] = await producer.enqueueMany(sum, [[1], [2]], { each: ([n]) => ({ priority: n ?? 0 }) })
    if (first) expectTypeOf(await producer.get(first)).not.toBeAny()
    // @ts-expect-error a text is no payload of it
    await producer.enqueue(sum, 'one')
    // @ts-expect-error the payload is an object
    await producer.enqueue(mail, 'ada')
  })
  const anything = defineTask({ name: 'anything' })
  expectTypeOf(anything).toEqualTypeOf<Task>()
})

it('a function of the user takes tasks by payload and result, and every task is a Task', () => {
  const send = (task: Task<{ to: string }, number>) => producer.enqueue(task, { to: 'ada' })
  const mail = defineTask<{ to: string }, number>({ name: 'mail' })
  never(async () => expectTypeOf(resultOf(await producer.waitFor(await send(mail)))).toEqualTypeOf<number>())
  // @ts-expect-error its result is a text
  never(() => send(defineTask<{ to: string }, string>({ name: 'mail' })))
  const all: Task[] = [mail, transforming, defineTask({ name: 'anything' })]
  expectTypeOf(all).toExtend<readonly Task[]>()
})

it('groups, parents and threads have the types of their tasks', () => {
  never(async () => {
    const job = ({} as GroupBuilder).add(transforming, { at: '2030-01-01' }).after('another')
    expectTypeOf(resultOf(await producer.waitFor(job))).toEqualTypeOf<{ id: string }>()
    const [parent] = await ({} as JobContext).parents.of(transforming)
    if (parent?.state === 'succeeded') expectTypeOf(parent.result).toEqualTypeOf<{ id: string }>()
  })
  expectTypeOf<Parameters<ThreadHandler<typeof transforming>>[0]['payload']>().toEqualTypeOf<{ at: Date }>()
  expectTypeOf<Awaited<ReturnType<ThreadHandler<typeof transforming>>>>().toEqualTypeOf<{ id: number }>()
})
