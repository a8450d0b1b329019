/** The users of Redis that the guide shows, made for one deployment on one server. */
import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'

export type RedisRole = 'producer' | 'worker' | 'relay'

/** As the guide spells them: an `ACL SETUSER` each, over several lines. */
export function usersInGuide(): { role: RedisRole; rules: string[] }[] {
  const block = /```redis\n(.*?)```/s.exec(readFileSync('docs/guide.md', 'utf8'))?.[1] ?? ''
  return block.split(/^ACL SETUSER /m).flatMap(text => {
    const [name, ...rules] = text.trim().split(/\s+/)
    return name ? [{ role: name.replace('longshore-', '') as RedisRole, rules }] : []
  })
}

/** Returns the URL of each user. */
export async function makeRedisUsers(url: string, deployment: string): Promise<Record<RedisRole, string>> {
  const admin = new Redis(url)
  const urls: Partial<Record<RedisRole, string>> = {}
  try {
    for (const { role, rules } of usersInGuide()) {
      const name = `${role}-${deployment}`
      const own = rules.map(rule => rule.replaceAll('DEPLOYMENT', deployment))
      await admin.call('ACL', 'SETUSER', name, ...own)
      const there = new URL(url)
      there.username = name
      there.password = rules.find(rule => rule.startsWith('>'))?.slice(1) ?? ''
      urls[role] = there.href
    }
  } finally {
    admin.disconnect()
  }
  return urls as Record<RedisRole, string>
}

/** Returns what they were refused: `<user> <command, key or channel>`. Not INFO, which longshore can do without. */
export async function dropRedisUsers(urls: Record<RedisRole, string>, admin: string): Promise<string[]> {
  const client = new Redis(admin)
  try {
    const names = Object.values(urls).map(url => new URL(url).username)
    const log = (await client.call('ACL', 'LOG', '128')) as string[][]
    await client.call('ACL', 'DELUSER', ...names)
    const field = (entry: string[], name: string) => String(entry[entry.indexOf(name) + 1])
    return log
      .filter(entry => names.includes(field(entry, 'username')) && field(entry, 'object') !== 'info')
      .map(entry => `${field(entry, 'username')} ${field(entry, 'object')}`)
  } finally {
    client.disconnect()
  }
}
