/** Owns what `--profile` tells of Redis: what a job costs, command by command; which commands were slow. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatTable } from '../report/print.ts'
import { REDIS_NOTES, type RedisNotes } from './stretch-profile.ts'

const SHOWN_COMMANDS = 12

/** Nothing where no Redis took part. */
export function formatRedis(folder: string, jobs: number): string[] {
  const file = join(folder, REDIS_NOTES)
  if (!existsSync(file)) return []
  const notes = JSON.parse(readFileSync(file, 'utf8')) as RedisNotes
  const commands = readCommandStats(notes.commandStats).slice(0, SHOWN_COMMANDS)
  return [
    formatTable({
      head: ['µs/job', 'calls/job', 'µs/call', 'calls', 'command of Redis'],
      rows: commands.map(({ name, calls, us }) => [
        (us / jobs).toFixed(2),
        (calls / jobs).toFixed(3),
        (us / calls).toFixed(1),
        String(calls),
        name,
      ]),
    }),
    ...notes.slow.map(({ us, command }) => `slow: ${(us / 1000).toFixed(1)} ms, ${command}`),
    ...notes.latency.map(({ event, worstMs }) => `latency: ${event}, at worst ${worstMs} ms`),
  ]
}

/** The costliest first. What a script calls is counted beside the script. */
export function readCommandStats(text: string): { name: string; calls: number; us: number }[] {
  return [...text.matchAll(/^cmdstat_([^:]+):calls=(\d+),usec=(\d+)/gm)]
    .map(([, name = '', calls, us]) => ({ name, calls: Number(calls), us: Number(us) }))
    .sort((a, b) => b.us - a.us)
}
