/** Workers and relays of the command line with their metrics and health over HTTP. None outlives its test. */
import { afterEach } from 'vitest'
import { parsePrometheus, type Scrape } from './prometheus-text.ts'
import { type Cli, spawnCli } from './spawn-cli.ts'

export interface Served {
  readonly cli: Cli
  readonly url: string
  scrape(): Promise<Scrape>
  ask(path: '/healthz' | '/readyz'): Promise<{ status: number; body: Record<string, unknown> }>
}

export function useServed() {
  const started: Cli[] = []
  afterEach(async () => {
    for (const { child } of started) child.kill('SIGKILL')
    await Promise.all(started.splice(0).map(cli => cli.ended))
  })

  /** The command with `--metrics-port 0`. Resolves when it says where they are. */
  return async (args: string[], env: Record<string, string>): Promise<Served> => {
    const cli = spawnCli([...args, '--metrics-port', '0'], { LONGSHORE_LOG_LEVEL: 'silent', ...env })
    started.push(cli)
    await cli.says('/metrics\n')
    const url = /running.*, metrics at (http:\/\/127\.0\.0\.1:\d+\/metrics)\n/.exec(cli.said())?.[1] ?? ''
    return {
      cli,
      url,
      async scrape() {
        return parsePrometheus(await (await fetch(url)).text())
      },
      async ask(path) {
        const response = await fetch(url.replace('/metrics', path))
        return { status: response.status, body: (await response.json()) as Record<string, unknown> }
      },
    }
  }
}
