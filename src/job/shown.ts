/** Owns how a value that was refused looks in a message. */

/** Never throws itself, and never long. */
export function shown(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  try {
    return String(value).slice(0, 200)
  } catch {
    return `something of type ${typeof value}`
  }
}

/** The same where a text is due: with quotes, so that an empty one can be seen. */
export const quoted = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(value.slice(0, 200)) : shown(value)
