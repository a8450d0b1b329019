/** Owns which way a worker's jobs come: through Redis while that way is open, else directly from Postgres. Both at once do no harm. */
import type { DirectSource } from './direct-source.ts'
import type { JobSource } from './job-source.ts'
import type { RedisSource } from './redis-source.ts'

export interface SwitchedSource extends JobSource {
  /** The worker may claim from now on. */
  begin(): void
}

/** A relay that leads is heard by then; a worker that hears none goes directly to Postgres. */
const FIRST_BEAT_MS = 700
/** Workers whose way through Redis has closed do not all ask Postgres at the same moment. */
const DIRECT_WITHIN_MS = 300

export function createSwitchedSource(options: {
  direct: DirectSource
  /** None: there is one way only. */
  openRedis: ((onChange: (isOpen: boolean) => void) => RedisSource) | undefined
  /** It rests from the start. */
  isResting: boolean
  look: () => void
  /** Resolves when the exchanges that are under way have been answered. */
  answered: () => Promise<void>
  onSwitch: (isThroughRedis: boolean) => void
}): SwitchedSource {
  const { direct, look } = options
  let redis: RedisSource | undefined
  let { isResting } = options
  let isClosed = false
  let lookTimer: NodeJS.Timeout | undefined

  const current = (): JobSource => (redis?.isOpen ? redis : direct)

  const lookWithin = (ms: number) => {
    clearTimeout(lookTimer)
    lookTimer = setTimeout(look, ms)
  }

  /** Resolves when the way through Redis is open, at once where there is none, or when the time is up. */
  const opened = (ms: number) =>
    new Promise<void>(resolve => {
      if (!redis || redis.isOpen || isClosed) return resolve()
      onOpen = resolve
      setTimeout(resolve, ms)
    })
  let onOpen: () => void = () => undefined

  const onChange = (isOpen: boolean) => {
    if (isClosed) return
    if (isOpen) onOpen()
    options.onSwitch(isOpen)
    restDirect()
    clearTimeout(lookTimer)
    if (isOpen) look()
    else lookWithin(Math.random() * DIRECT_WITHIN_MS)
  }
  const restDirect = () => direct.rest(isResting || redis?.isOpen === true)
  restDirect()

  return {
    get way() {
      return current().way
    },
    get looksForFree() {
      return current().looksForFree
    },
    begin() {
      redis = options.openRedis?.(onChange)
      if (!redis) return look()
      if (isResting) void redis.rest(true)
      lookWithin(FIRST_BEAT_MS)
    },
    exchange: (outcomes, limit) => current().exchange(outcomes, limit),
    onClaimed: jobs => current().onClaimed(jobs),
    onIdle: () => current().onIdle(),
    onFull: () => current().onFull(),
    onCompleted: lease => redis?.onCompleted(lease),
    async rest(isToRest) {
      isResting = isToRest
      if (isToRest) {
        await restDirect()
        // Redis must hear what became of the ids that were taken there.
        await options.answered()
      }
      await redis?.rest(isToRest)
      if (!isToRest) await opened(FIRST_BEAT_MS)
      await restDirect()
    },
    onPropertiesChanged: async () => redis?.onPropertiesChanged(),
    probe: async () => redis?.probe(),
    async close() {
      isClosed = true
      clearTimeout(lookTimer)
      await Promise.all([direct.close(), redis?.close()])
    },
  }
}
