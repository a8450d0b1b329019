/** Owns the life of a server that is ours: start on a port, stop, kill, restart. What the server is, it does not know. */
import { createServer } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { LongshoreError } from '../job/errors.ts'
import type { Exit, GuardedProcess } from './guarded-process.ts'
import type { Store } from './store.ts'

interface ServerLife {
  /** `Postgres 18.4`, for messages. */
  readonly name: string
  readonly port: number | undefined
  readonly stopSignal: NodeJS.Signals
  /** Resolves when the server accepts connections; throws what `failedStart` makes of its end. */
  launch(port: number): Promise<GuardedProcess>
  /** After the last stop: remove what was temporary. */
  onStopped(): Promise<void>
}

export interface OwnedServer {
  readonly port: number
  readonly pid: number | undefined
  stop(): Promise<void>
  kill(): Promise<void>
  restart(): Promise<void>
}

const STOP_LIMIT_MS = 10_000
const PORT_TRIES = 10
const PORT_PAUSE_MS = 100

/** Someone else has the port: another one may do. */
export class PortTaken extends LongshoreError {}

export async function startOwnedServer(life: ServerLife): Promise<OwnedServer> {
  let { port, running } = await launchOnPort(life, life.port)
  let stopping: Promise<void> | undefined

  async function halt(): Promise<void> {
    if (running.exit) return
    running.signal(life.stopSignal)
    const limit = setTimeout(() => running.signal('SIGKILL'), STOP_LIMIT_MS)
    await running.untilExit()
    clearTimeout(limit)
  }

  return {
    port,
    get pid() {
      return running.exit ? undefined : running.pid
    },
    stop() {
      stopping ??= halt().then(life.onStopped)
      return stopping
    },
    async kill() {
      if (running.exit) return
      running.signal('SIGKILL')
      await running.untilExit()
    },
    async restart() {
      if (stopping) {
        throw new LongshoreError('STORE_UNAVAILABLE', `${life.name} was stopped for good: start a new one`)
      }
      await halt()
      running = (await launchOnPort(life, port)).running
    },
  }
}

/** The server as its caller sees it. */
export function ownedStore(
  server: OwnedServer,
  facts: Pick<Store, 'url' | 'version' | 'choice' | 'dataDir' | 'ca'>,
): Store {
  return {
    ...facts,
    get pid() {
      return server.pid
    },
    stop: server.stop,
    kill: server.kill,
    restart: server.restart,
  }
}

/** Between finding a free port and using it another process may take it, so the server's own word counts. */
async function launchOnPort(life: ServerLife, fixed: number | undefined) {
  for (let tries = 1; ; tries++) {
    const port = fixed ?? (await freePort())
    try {
      return { port, running: await life.launch(port) }
    } catch (error) {
      if (!(error instanceof PortTaken) || tries === PORT_TRIES) throw error
      if (fixed !== undefined) await delay(PORT_PAUSE_MS)
    }
  }
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(address && typeof address === 'object' ? address.port : 0))
    })
  })
}

export function failedStart(name: string, port: number, exit: Exit): LongshoreError {
  if (/address already in use/i.test(exit.output)) {
    return new PortTaken(
      'STORE_UNAVAILABLE',
      `${name} did not start: port ${port} on 127.0.0.1 is in use; choose another or leave it out`,
    )
  }
  const how = exit.signal ? `ended by ${exit.signal}` : `exit code ${exit.code}`
  const lines = exit.output.trim().split('\n').slice(-15).join('\n')
  return new LongshoreError('STORE_UNAVAILABLE', `${name} did not start (${how}). It said:\n${lines}`)
}
