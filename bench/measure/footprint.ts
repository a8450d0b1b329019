/** Owns what a process holds, read from /proc (nothing where there is none): its connections to Postgres, and its memory. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

const hasProc = process.platform === 'linux'
const ESTABLISHED = '01'

/** Connections of the process to the port of this URL. */
export function countConnections(pid: number, url: string): number | undefined {
  if (!hasProc) return undefined
  const port = Number(new URL(url).port || 5432)
  const sockets = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap(fd => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? []
      } catch {
        return [] // closed meanwhile
      }
    }),
  )
  const lines = ['tcp', 'tcp6'].flatMap(kind =>
    readFileSync(`/proc/${pid}/net/${kind}`, 'utf8').trim().split('\n').slice(1),
  )
  return lines.filter(line => {
    const [, , remote = '', state, , , , , , inode = ''] = line.trim().split(/\s+/)
    return state === ESTABLISHED && sockets.has(inode) && Number(`0x${remote.split(':')[1]}`) === port
  }).length
}

/** Resident memory in MB. */
export function residentMemory(pid: number): number | undefined {
  if (!hasProc) return undefined
  const kb = /^VmRSS:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return kb === undefined ? undefined : Number(kb) / 1024
}
