/** Every take of a deployment in the order in which Redis did them: there the order of jobs is decided, if they go that way. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import type { TestDatabase } from './database.ts'

/** On a plain socket: a client library that is sent what others do in one piece with the answer to MONITOR takes it for an answer. */
export async function watchTakes(redisUrl: string, database: TestDatabase) {
  const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  const { hostname, port, username, password } = new URL(redisUrl)
  const socket = connect(Number(port || 6379), hostname)
  await once(socket, 'connect')
  if (password)
    socket.write(`AUTH ${[username, password].filter(Boolean).map(decodeURIComponent).join(' ')}\r\n`)
  socket.write('MONITOR\r\n')
  const ids: string[] = []
  const lines = createInterface({ input: socket })
  const isWatching = new Promise<void>((resolve, reject) => {
    lines.on('line', line => {
      if (line.startsWith('-')) return reject(new Error(line))
      if (!line.startsWith('+OK')) return note(line)
      resolve()
    })
  })
  const note = (line: string) => {
    const [command = '', key = '', ...fields] = [...line.matchAll(/"([^"]*)"/g)].map(([, text = '']) => text)
    if (command.toUpperCase() !== 'HSET' || !key.endsWith(':taken')) return
    if (!key.startsWith(`longshore:${row?.deployment}:`)) return
    // The entry without a name is there from the beginning.
    for (let at = 0; at < fields.length; at += 2) if (fields[at]) ids.push(fields[at] as string)
  }
  await isWatching
  return {
    /** What has been taken so far. */
    ids,
    stop() {
      lines.close()
      socket.destroy()
    },
  }
}
