/** A job from enqueue to end in a process that cannot find OpenTelemetry. Says so, and how the job ended. */
import { register } from 'node:module'

const hooks = `export async function resolve(specifier, context, next) {
  if (!specifier.startsWith('@opentelemetry/')) return next(specifier, context)
  throw Object.assign(new Error('not installed: ' + specifier), { code: 'ERR_MODULE_NOT_FOUND' })
}`
register(`data:text/javascript,${encodeURIComponent(hooks)}`)

const missing = await import('@opentelemetry/api').then(
  () => 'it was found',
  error => error.code,
)
console.log(missing)

const { createProducer, createWorker, defineTask } = await import('../../src/index.ts')
const task = defineTask<null>({ name: 'untraced' })
const producer = createProducer()
const worker = createWorker({ handlers: [task.handle(() => undefined)] })
await worker.start()
console.log((await producer.waitFor(await producer.enqueue(task, null))).state)
await worker.stop()
await producer.close()
