/** Every take of a deployment in the order in which Redis did them: there the order of jobs is decided, if they go that way. */
import { Redis } from 'ioredis'
import type { TestDatabase } from './database.ts'

export async function watchTakes(redisUrl: string, database: TestDatabase) {
  const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  const client = new Redis(redisUrl)
  const monitor = await client.monitor()
  const ids: string[] = []
  monitor.on('monitor', (_: string, [command = '', key = '', ...fields]: string[]) => {
    if (command.toUpperCase() !== 'HSET' || !key.endsWith(':taken')) return
    if (!key.startsWith(`longshore:${row?.deployment}:`)) return
    // The entry without a name is there from the beginning.
    for (let at = 0; at < fields.length; at += 2) if (fields[at]) ids.push(fields[at] as string)
  })
  return {
    /** What has been taken so far. */
    ids,
    stop() {
      monitor.disconnect()
      client.disconnect()
    },
  }
}
