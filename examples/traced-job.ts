import { trace } from '@opentelemetry/api'
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'
import { createProducer, createWorker, defineTask, migrate } from 'longshore'

// As in any service that traces; yours sends its spans somewhere. longshore needs no setting.
const exporter = new InMemorySpanExporter()
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register()
const tracer = trace.getTracer('shop')

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })
const ship = defineTask<{ order: number }>({ name: 'ship' })
const producer = createProducer({ postgres })
const worker = createWorker({
  postgres,
  handlers: [
    ship.handle(async ({ payload }) => {
      tracer.startActiveSpan('print label', span => span.setAttribute('order', payload.order).end())
    }),
  ],
})
await worker.start()

await tracer.startActiveSpan('POST /orders', async span => {
  const job = await producer.enqueue(ship, { order: 17 })
  span.end()
  await producer.waitFor(job)
})
await worker.stop()
await producer.close()

const spans = exporter.getFinishedSpans()
const show = (parent: string | undefined, depth: number) => {
  for (const span of spans.filter(each => each.parentSpanContext?.spanId === parent)) {
    console.log(`${'  '.repeat(depth)}${span.name}`)
    show(span.spanContext().spanId, depth + 1)
  }
}
show(undefined, 0)
