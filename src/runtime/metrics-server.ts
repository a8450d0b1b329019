/**
 * Owns the HTTP endpoint of a worker or relay: `/metrics` for Prometheus, `/healthz` and `/readyz` for the orchestrator.
 * On loopback unless told otherwise. Clients that are slow, or send too much, are cut off.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { LongshoreError } from '../job/errors.ts'
import type { Health } from './health.ts'
import type { Exposition } from './prometheus.ts'

export interface MetricsServer {
  /** Of the metrics. */
  readonly url: string
  close(): Promise<void>
}

interface Answer {
  readonly status: number
  readonly contentType: string
  readonly body: string
  readonly headers?: Record<string, string>
}

/** How long a client may take to ask, and may be silent. */
const ASK_MS = 5000
const SILENT_MS = 10_000
const LOOK_MS = 1000
const HEADER_BYTES = 8192
const MOST_CONNECTIONS = 200

export async function serveMetrics(options: {
  /** 0: any that is free. */
  port: number
  host: string
  prometheus: () => Promise<Exposition>
  health: () => Promise<Health>
}): Promise<MetricsServer> {
  const { port, host } = options
  const pages: Record<string, () => Promise<Answer>> = {
    '/metrics': shared(async () => {
      const { contentType, text } = await options.prometheus()
      return { status: 200, contentType, body: text }
    }),
    // That it is answered is the answer: an event loop that does not run answers nothing.
    '/healthz': async () => inJson(200, { isAlive: true }),
    '/readyz': shared(async () => {
      const health = await options.health()
      return inJson(health.isReady ? 200 : 503, health)
    }),
  }
  const server = createServer(
    {
      headersTimeout: ASK_MS,
      requestTimeout: ASK_MS,
      keepAliveTimeout: ASK_MS,
      connectionsCheckingInterval: LOOK_MS,
      maxHeaderSize: HEADER_BYTES,
    },
    async (request, response) => {
      const { status, contentType, body, headers } = await answer(request, pages)
      response
        .writeHead(status, {
          'content-type': contentType,
          'content-length': Buffer.byteLength(body),
          'cache-control': 'no-store',
          ...headers,
        })
        .end(body) // node leaves it out for HEAD
    },
  )
  server.setTimeout(SILENT_MS)
  server.maxConnections = MOST_CONNECTIONS
  server.listen(port, host)
  await once(server, 'listening').catch(error => {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `metrics cannot be served on port ${port} of ${host}: ${error.message}. Choose another port (0: any that is free) or address`,
      { cause: error },
    )
  })
  const address = server.address()
  const given = typeof address === 'object' && address ? address.port : port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${given}/metrics`,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

async function answer(
  request: IncomingMessage,
  pages: Record<string, () => Promise<Answer>>,
): Promise<Answer> {
  const path = request.url?.split('?')[0] ?? ''
  const page = Object.hasOwn(pages, path) ? pages[path] : undefined
  if (!page) return inText(404, `there are ${Object.keys(pages).join(', ')}\n`)
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    return { ...inText(405, 'use GET or HEAD\n'), headers: { allow: 'GET, HEAD' } }
  }
  // The error may contain anything, so the client does not get it.
  return page().catch(() => inText(500, 'this could not be found out\n'))
}

const inText = (status: number, body: string): Answer => ({ status, contentType: 'text/plain', body })

const inJson = (status: number, body: object): Answer => ({
  status,
  contentType: 'application/json',
  body: `${JSON.stringify(body)}\n`,
})

/** Requests that come while an answer is being found get that one. */
function shared<T>(find: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<T> | undefined
  return () => {
    underWay ??= find().finally(() => {
      underWay = undefined
    })
    return underWay
  }
}
