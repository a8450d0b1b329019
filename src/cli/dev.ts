/** `longshore dev`: a Postgres and a Redis of its own for development; never those that the environment names. */
import type { Command } from 'commander'
import { type Store, startPostgres, startRedis } from '../dev/index.ts'
import { migrate } from '../postgres/migrate.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { tell } from './output.ts'
import { untilSignal } from './until-signal.ts'

export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .description('start a migrated Postgres and a Redis for development; both end with this command')
    .option('--schema <name>', 'schema to install', DEFAULT_SCHEMA)
    .action(async ({ schema }: { schema: string }) => {
      checkSchemaName(schema)
      let stores: Store[] = []
      const stop = async () => {
        await Promise.all(stores.map(store => store.stop()))
      }
      await untilSignal({
        name: 'longshore dev',
        async start() {
          const [postgres, redis] = await Promise.all([
            startPostgres({ own: true }),
            startRedis({ own: true }),
          ])
          stores = [postgres, redis]
          tell(postgres.choice, redis.choice)
          try {
            await migrate({ postgres: postgres.url, schema })
          } catch (error) {
            await stop()
            throw error
          }
          tell('longshore dev: running; Ctrl-C ends it')
          return [`export DATABASE_URL=${postgres.url}`, `export REDIS_URL=${redis.url}`]
        },
        stop,
      })
    })
}
