/** Owns how a value of a user looks in a message: never throws, and never long. */

const LONGEST = 200

/** A text that may be of any length. */
export const cut = (text: string, longest = LONGEST): string =>
  text.length > longest ? `${text.slice(0, longest - 1)}…`.toWellFormed() : text

export function shown(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  try {
    return cut(String(value))
  } catch {
    return `something of type ${typeof value}`
  }
}

/** The same where a text is due: with quotes, so that an empty one can be seen. */
export const quoted = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(cut(value)) : shown(value)

/** Several, of which only the first are named. */
export function listed(items: readonly string[], most = 10): string {
  const more = items.length - most
  return `${items
    .slice(0, most)
    .map(item => cut(item))
    .join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}
