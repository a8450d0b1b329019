/** Owns names in Redis. All keys of a queue share one hash tag, so that they live on one node of a cluster. */

/**
 * Which keys the scripts make and keep. Processes of another version that keep others do not meet: a worker that does not find the
 * relay's content claims directly from Postgres. Raise it when a script of before would misread what those of now write.
 */
const LAYOUT = 2

/** The key that a queue's scripts are given; they make the others from it. */
export function rootKey(deployment: string, queue: string): string {
  return `longshore:${deployment}:{${encodeURIComponent(queue).replaceAll('*', '%2A')}}:${LAYOUT}`
}

/** A worker is rung here. */
export const bellChannel = (deployment: string, workerId: number) =>
  `longshore:${deployment}:bell:${workerId}`
/** The relay tells here, several times a second, that it leads: `<generation> <queue>`. */
export const beatChannel = (deployment: string) => `longshore:${deployment}:beat`
/** The relay is told here that a lane runs low. */
export const lowChannel = (deployment: string) => `longshore:${deployment}:low`
/** Producers tell the relay here of jobs that they have made ready, see `hint-message.ts`. */
export const hintChannel = (deployment: string) => `longshore:${deployment}:hint`
