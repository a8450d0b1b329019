/** The kinds of roles that `migrate --roles` makes. */
export type Granted = 'producer' | 'worker' | 'relay' | 'reader'
export type Kind = 'owner' | Granted
export const KINDS: readonly Kind[] = ['owner', 'producer', 'worker', 'relay', 'reader']

/** The same database, as this user. */
export function asUser(url: string, user: string): string {
  const there = new URL(url)
  there.username = user
  return there.href
}
