/** Owns the HTTP endpoint that Prometheus scrapes. On loopback unless told otherwise. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { checkWhole } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'

export interface MetricsServer {
  readonly url: string
  close(): Promise<void>
}

/** `render`: the text of all metrics, as of now. */
export async function serveMetrics(options: {
  /** 0: any that is free. */
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
  checkWhole('CONFIG_INVALID', 'the port of the metrics', options.port, 0, 65_535)
  const host = options.host ?? '127.0.0.1'
  server.listen(options.port, host)
  await once(server, 'listening').catch(error => {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `metrics cannot be served on port ${options.port}: ${error.message}. Choose another port`,
      { cause: error },
    )
  })
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : options.port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}/metrics`,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
