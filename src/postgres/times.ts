/** Owns how times come from Postgres: as numbers, and in texts as ISO 8601 in UTC, whatever DateStyle and TimeZone are. */

/** SQL: a time as milliseconds since 1970, for `toDate`. */
export const asMs = (time: string): string => `floor(extract(epoch from ${time}) * 1000)`

/** SQL: a time within a sentence. */
export const asText = (time: string): string =>
  `to_char(${time} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`

export function toDate(ms: unknown): Date
export function toDate(ms: unknown, isOptional: true): Date | null
export function toDate(ms: unknown): Date | null {
  return ms === null ? null : new Date(Number(ms))
}
