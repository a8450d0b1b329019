/** `longshore dev`: a Postgres and a Redis of its own for development; never those that the environment names. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { type Store, startPostgres, startRedis } from '../dev/index.ts'
import { migrate } from '../postgres/migrate.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { tell } from './output.ts'
import { untilSignal } from './until-signal.ts'

interface Ports {
  port?: number
  redisPort?: number
}

type Options = Ports & { schema: string; dataDir?: string }

export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .description('start a migrated Postgres and a Redis for development; both end with this command')
    .option('--schema <name>', 'schema to install', DEFAULT_SCHEMA)
    .option('--data-dir <folder>', 'keep data and ports there for the next time (default: nothing is kept)')
    .option('--port <port>', 'port of Postgres (default: a free one, or as the last time)', toPort)
    .option('--redis-port <port>', 'port of Redis (default: a free one, or as the last time)', toPort)
    .action(async ({ schema, dataDir, ...given }: Options) => {
      checkSchemaName(schema)
      const folder = dataDir === undefined ? undefined : resolve(dataDir)
      const { port, redisPort } = { ...(folder ? readPorts(folder) : {}), ...given }
      let stores: Store[] = []
      const stop = async () => {
        await Promise.all(stores.map(store => store.stop()))
      }
      const options = (name: string, at: number | undefined) => ({
        own: true,
        progress: tell,
        ...(folder ? { dataDir: join(folder, name) } : {}),
        ...(at === undefined ? {} : { port: at }),
      })
      await untilSignal({
        name: 'longshore dev',
        async start() {
          const started = await Promise.allSettled([
            startPostgres(options('postgres', port)),
            startRedis({ ...options('redis', redisPort), mayForget: true }),
          ])
          stores = started.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []))
          try {
            for (const each of started) if (each.status === 'rejected') throw each.reason
            const [postgres, redis] = stores as [Store, Store]
            tell(postgres.choice, redis.choice)
            const steps = await migrate({ postgres: postgres.url, schema })
            if (folder) keepPorts(folder, postgres, redis)
            if (folder && !redis.dataDir) tell('this Redis keeps nothing: it is filled anew from Postgres')
            const kept = folder
              ? `data and ports are kept in ${folder}`
              : 'nothing is kept: --data-dir keeps data and ports'
            const what = steps.length > 0 ? 'migrated' : 'as it was left'
            tell(`longshore dev: running, schema ${schema} is ${what}; ${kept}. Ctrl-C ends it`)
            return [`export DATABASE_URL=${postgres.url}`, `export REDIS_URL=${redis.url}`]
          } catch (error) {
            await stop()
            throw error
          }
        },
        stop,
      })
    })
}

const PORTS_FILE = 'longshore-ports.json'

function readPorts(folder: string): Ports {
  try {
    const { port, redisPort } = JSON.parse(readFileSync(join(folder, PORTS_FILE), 'utf8'))
    return { port, redisPort }
  } catch {
    return {} // the first time
  }
}

function keepPorts(folder: string, postgres: Store, redis: Store): void {
  const [port, redisPort] = [postgres, redis].map(({ url }) => Number(new URL(url).port))
  writeFileSync(join(folder, PORTS_FILE), `${JSON.stringify({ port, redisPort })}\n`)
}

function toPort(text: string): number {
  if (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535) return Number(text)
  throw new InvalidArgumentError('It must be a whole number from 1 to 65535.')
}
