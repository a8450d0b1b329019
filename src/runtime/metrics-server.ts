/** Owns the HTTP endpoint that Prometheus scrapes. On loopback unless told otherwise. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { LongshoreError } from '../job/errors.ts'

export interface MetricsServer {
  readonly port: number
  close(): Promise<void>
}

/** `render`: the text of all metrics, as of now. */
export async function serveMetrics(options: {
  port: number
  /** Default: loopback only. */
  host?: string
  contentType: string
  render: () => Promise<string>
}): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    if (request.method !== 'GET' || request.url?.split('?')[0] !== '/metrics') {
      response.writeHead(404).end('metrics are at /metrics\n')
      return
    }
    options.render().then(
      text => response.writeHead(200, { 'content-type': options.contentType }).end(text),
      () => response.writeHead(500).end('the metrics could not be collected\n'),
    )
  })
  server.listen(options.port, options.host ?? '127.0.0.1')
  await once(server, 'listening').catch(error => {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `metrics cannot be served on port ${options.port}: ${error.message}. Choose another port`,
      { cause: error },
    )
  })
  const address = server.address()
  return {
    port: typeof address === 'object' && address ? address.port : options.port,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
