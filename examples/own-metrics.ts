import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createProducer, createWorker, defineTask, migrate } from 'longshore'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })

const greet = defineTask<string>({ name: 'greet' })
const worker = createWorker({ postgres, handlers: [greet.handle(() => undefined)] })
await worker.start()

const server = createServer(async (request, response) => {
  if (request.url === '/metrics') {
    const { contentType, text } = await worker.prometheus()
    response.setHeader('content-type', contentType).end(text)
  } else {
    const health = await worker.health()
    response.writeHead(health.isReady ? 200 : 503).end(JSON.stringify(health))
  }
})
await once(server.listen(0, '127.0.0.1'), 'listening')

const producer = createProducer({ postgres })
await producer.waitFor(await producer.enqueue(greet, 'Ada'))

const ask = async (path: string) => {
  const { port } = server.address() as AddressInfo
  return (await fetch(`http://127.0.0.1:${port}${path}`)).text()
}
const lines = (await ask('/metrics')).split('\n')
console.log(lines.find(line => line.startsWith('longshore_worker_tasks_completed_total')))
console.log(await ask('/readyz'))

server.close()
server.closeAllConnections()
await producer.close()
await worker.stop()
