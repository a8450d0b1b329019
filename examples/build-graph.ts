import { createProducer, createWorker, defineTask, migrate } from 'longshore'
import { z } from 'zod'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })

const compile = defineTask({
  name: 'compile',
  payload: z.object({ source: z.string() }),
  result: z.object({ object: z.string(), bytes: z.number() }),
})
const link = defineTask<{ program: string }>({ name: 'link' })
const test = defineTask<{ program: string }>({ name: 'test', retry: { maxAttempts: 1 } })
const pack = defineTask<{ program: string }>({ name: 'package' })
const announce = defineTask<{ program: string }>({ name: 'announce' })
const document = defineTask<{ program: string }>({ name: 'document' })
const cleanUp = defineTask<{ folder: string }>({ name: 'clean-up' })
const ship = defineTask<{ step: string }>({ name: 'ship' })
const producer = createProducer({ postgres })

// Nothing is stored before submit, which inserts all of it or nothing.
const program = 'app'
const build = producer.group({ name: 'nightly build' })
const compiled = ['a.c', 'b.c', 'c.c'].map(source => build.add(compile, { source }))
const linked = build.add(link, { program }, { after: compiled })
const tested = build.add(test, { program }, { after: linked })
const packed = build.add(pack, { program }, { after: tested })
const told = build.add(announce, { program }, { after: { job: packed, onFailure: 'cancel' } })
const written = build.add(document, { program })
// Whatever happens, it runs when all the others have ended.
const all = [...compiled, linked, tested, packed, told, written]
const cleaned = build.add(
  cleanUp,
  { folder: 'build' },
  { after: all.map(job => ({ job, onFailure: 'run' })) },
)
await build.submit()

// Jobs of one workflow run one after another, over all workers, in this order.
const shipped: string[] = []
const steps = ['pick', 'pack', 'hand over'].map(step =>
  producer.enqueue(ship, { step }, { workflow: 'order-17' }),
)

const worker = createWorker({
  postgres,
  handlers: [
    compile.handle(({ payload }) => ({ object: payload.source.replace('.c', '.o'), bytes: 1000 })),
    link.handle(async (_, ctx) => {
      const objects = await ctx.parents.of(compile) // results have the type of that task
      const bytes = objects.reduce((sum, { result }) => sum + (result?.bytes ?? 0), 0)
      console.log('linked', objects.map(({ result }) => result?.object).join(' '), `${bytes} bytes`)
    }),
    test.handle(() => {
      throw new Error('2 of 40 tests failed')
    }),
    pack.handle(() => console.log('never called')),
    announce.handle(() => console.log('never called')),
    document.handle(() => undefined),
    cleanUp.handle(() => undefined),
    ship.handle(({ payload }) => {
      shipped.push(payload.step)
    }),
  ],
})
await worker.start()

const { name, state, counts } = await producer.waitForGroup(build, { timeout: '30s' })
for (const ref of [...all, cleaned]) {
  const job = await producer.get(ref)
  console.log(`${ref.task.padEnd(9)} ${job?.state} ${job?.error?.code ?? ''}`.trimEnd())
}
console.log(`${name}: ${state}, ${counts.succeeded} of ${all.length + 1} jobs succeeded`)

for (const step of steps) await producer.waitFor(await step)
console.log(`order-17: ${shipped.join(', ')}`)

await worker.stop()
await producer.close()
