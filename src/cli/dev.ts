/** `longshore dev`: a Postgres and a Redis of its own for development; never those that the environment names. */
import type { Command } from 'commander'
import { type Store, startPostgres, startRedis } from '../dev/index.ts'
import { migrate } from '../postgres/migrate.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
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
          process.stderr.write(`${postgres.choice}\n${redis.choice}\n`)
          try {
            await migrate({ postgres: postgres.url, schema })
          } catch (error) {
            await stop()
            throw error
          }
          process.stderr.write('longshore dev: running; Ctrl-C ends it\n')
          return `export DATABASE_URL=${postgres.url}\nexport REDIS_URL=${redis.url}`
        },
        stop,
      })
    })
}
