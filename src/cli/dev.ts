/** `longshore dev`: a Postgres and a Redis for development, ready to use, gone when it ends. */
import type { Command } from 'commander'
import { startPostgres, startRedis } from '../dev/index.ts'
import { migrate } from '../postgres/migrate.ts'
import { DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { untilSignal } from './until-signal.ts'

export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .description('start a migrated Postgres and a Redis for development; both end with this command')
    .option('--schema <name>', 'schema to install', DEFAULT_SCHEMA)
    .action(async ({ schema }: { schema: string }) => {
      const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
      const stop = async () => {
        await Promise.all([postgres.stop(), redis.stop()])
      }
      process.stderr.write(`${postgres.choice}\n${redis.choice}\n`)
      try {
        await migrate({ postgres: postgres.url, schema })
      } catch (error) {
        await stop()
        throw error
      }
      process.stderr.write('longshore dev: running; Ctrl-C ends it\n')
      await untilSignal(`export DATABASE_URL=${postgres.url}\nexport REDIS_URL=${redis.url}`, stop)
    })
}
