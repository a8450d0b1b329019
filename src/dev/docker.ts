/** Owns the way through Docker: is it asked for, does its engine answer, and a container from testcontainers. */
import { request } from 'node:http'
import { join } from 'node:path'
import { LongshoreError } from '../job/errors.ts'
import { type Environment, foreignStore, type Store } from './store.ts'

const PING_LIMIT_MS = 2_000

export function isDockerAskedFor(env: Environment): boolean {
  const stores = env['LONGSHORE_STORES']
  if (!stores) return false
  if (stores === 'docker') return true
  throw new LongshoreError(
    'CONFIG_INVALID',
    `LONGSHORE_STORES is "${stores}": the only choice is "docker"; or unset it`,
  )
}

interface ContainerPlan {
  readonly image: string
  readonly port: number
  readonly env: Record<string, string>
  readonly readyLine: RegExp
  /** The entrypoint of some images starts the server twice. */
  readonly readyTimes: number
  readonly versionCommand: string[]
  url(host: string, port: number): string
}

export async function startContainer(plan: ContainerPlan, env: Environment): Promise<Store> {
  await probeDocker(env)
  const { GenericContainer, Wait } = await importTestcontainers()
  const container = await new GenericContainer(plan.image)
    .withEnvironment(plan.env)
    .withExposedPorts(plan.port)
    .withWaitStrategy(Wait.forLogMessage(plan.readyLine, plan.readyTimes))
    .start()
  const { output } = await container.exec(plan.versionCommand)
  const version = /\d+(\.\d+)+/.exec(output)?.[0] ?? 'of unknown version'
  return foreignStore(
    {
      url: plan.url(container.getHost(), container.getMappedPort(plan.port)),
      version,
      choice: `${plan.image} (version ${version}) in Docker (LONGSHORE_STORES=docker)`,
    },
    async () => {
      await container.stop()
    },
  )
}

/** Asks the engine for a sign of life: a client library would wait long for a socket without a server. */
async function probeDocker(env: Environment): Promise<void> {
  const failures: string[] = []
  for (const place of dockerPlaces(env)) {
    const failure = await ping(place)
    if (!failure) return
    failures.push(`${'socketPath' in place ? place.socketPath : `${place.host}:${place.port}`}: ${failure}`)
  }
  throw new LongshoreError(
    'STORE_UNAVAILABLE',
    `LONGSHORE_STORES=docker, but no Docker engine answers (${failures.join('; ')}): start Docker, set DOCKER_HOST, or unset LONGSHORE_STORES`,
  )
}

type Place = { socketPath: string } | { host: string; port: number }

function dockerPlaces(env: Environment): Place[] {
  const host = env['DOCKER_HOST']
  if (host?.startsWith('unix://')) return [{ socketPath: host.slice('unix://'.length) }]
  if (host) {
    const url = new URL(host.replace(/^tcp:/, 'http:'))
    return [{ host: url.hostname, port: Number(url.port || 2375) }]
  }
  const sockets = ['/var/run/docker.sock']
  if (env['XDG_RUNTIME_DIR']) sockets.push(join(env['XDG_RUNTIME_DIR'], 'docker.sock'))
  if (env['HOME']) sockets.push(join(env['HOME'], '.docker/run/docker.sock'))
  return sockets.map(socketPath => ({ socketPath }))
}

function ping(place: Place): Promise<string | undefined> {
  return new Promise(resolve => {
    const asked = request(
      { ...place, path: '/_ping', signal: AbortSignal.timeout(PING_LIMIT_MS) },
      response => {
        response.resume()
        resolve(response.statusCode === 200 ? undefined : `answers ${response.statusCode}`)
      },
    )
    asked.once('error', (error: NodeJS.ErrnoException) =>
      resolve(
        error.name === 'AbortError' ? `no answer within ${PING_LIMIT_MS} ms` : (error.code ?? error.message),
      ),
    )
    asked.end()
  })
}

async function importTestcontainers() {
  try {
    return await import('testcontainers')
  } catch (cause) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      'LONGSHORE_STORES=docker needs the package testcontainers: run `npm install --save-dev testcontainers`',
      { cause },
    )
  }
}
