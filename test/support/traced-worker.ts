/** A worker in a process of its own that traces. Says each span as it ends: name, trace, span, parent. */
import { once } from 'node:events'
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import { createProducer, createWorker, defineTask } from '../../src/index.ts'

const provider = new NodeTracerProvider({
  spanProcessors: [
    {
      onStart: () => undefined,
      onEnd(span) {
        const { traceId, spanId } = span.spanContext()
        process.stdout.write(`${span.name} ${traceId} ${spanId} ${span.parentSpanContext?.spanId}\n`)
      },
      forceFlush: async () => undefined,
      shutdown: async () => undefined,
    },
  ],
})
provider.register()

const first = defineTask<null>({ name: 'traced-first' })
const second = defineTask<null>({ name: 'traced-second' })
const producer = createProducer()
const worker = createWorker({
  handlers: [
    first.handle(async () => {
      await producer.enqueue(second, null)
    }),
    second.handle(() => undefined),
  ],
})
await worker.start()
await once(process, 'SIGTERM')
await worker.stop()
await producer.close()
