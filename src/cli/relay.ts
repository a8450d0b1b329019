/** `longshore relay`: run the sidecar. */
import type { Command } from 'commander'
import { connectRedis } from '../redis/connect-redis.ts'
import { createRelay } from '../relay/create-relay.ts'
import { createLogger } from '../runtime/logger.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { untilSignal } from './until-signal.ts'

export function addRelayCommand(program: Command): void {
  const command = program
    .command('relay')
    .description('run the sidecar: due jobs, rescue and history; several may run, one leads')
    .option(
      '--redis-url <url>',
      'a Redis to check at the start; dispatch through Redis is not built yet (REDIS_URL)',
    )
  addDatabaseOptions(command).action(async (options: DatabaseOptions & { redisUrl?: string }) => {
    const logger = createLogger('longshore relay')
    const redisUrl = options.redisUrl ?? process.env['REDIS_URL']
    if (redisUrl) await (await connectRedis(redisUrl)).quit()
    const relay = createRelay({ postgres: requireDatabaseUrl(options), schema: options.schema, logger })
    await relay.start()
    await untilSignal('longshore relay: running', () => relay.stop())
  })
}
