/**
 * Owns batching by nature, not by timer: items given while all calls are under way make up the next batch. A lone
 * item waits for nothing but the end of the current turn of the event loop.
 */
export interface NaturalBatch<T> {
  add(item: T): void
  /** Resolves when everything added so far has been handed on and answered. */
  idle(): Promise<void>
}

export function naturalBatch<T>(options: {
  /** Calls under way at once. */
  inFlight: number
  /** Items in one call. */
  maxItems: number
  /** Items with the same key are in one call at a time, so they are handed on in order. Without one, in any. */
  keyOf?: (item: T) => string | undefined
  /** Hands a batch on. Must not reject: it answers its items itself. */
  send: (items: T[]) => Promise<void>
}): NaturalBatch<T> {
  let waiting: T[] = []
  let busy = 0
  let isScheduled = false
  let onIdle: (() => void)[] = []

  const busyKeys = new Set<string>()

  const takeFree = (keyOf: (item: T) => string | undefined) => {
    const items: T[] = []
    const rest: T[] = []
    const keys = new Set<string>()
    for (const item of waiting) {
      const key = keyOf(item)
      const isFree = items.length < options.maxItems && (key === undefined || !busyKeys.has(key))
      if (isFree && key !== undefined) keys.add(key)
      ;(isFree ? items : rest).push(item)
    }
    waiting = rest
    for (const key of keys) busyKeys.add(key)
    return { items, keys }
  }

  const takeAny = () => {
    const items = waiting.length <= options.maxItems ? waiting : waiting.slice(0, options.maxItems)
    waiting = items === waiting ? [] : waiting.slice(options.maxItems)
    return { items, keys: undefined }
  }

  const pump = () => {
    while (busy < options.inFlight && waiting.length > 0) {
      const { items, keys } = options.keyOf ? takeFree(options.keyOf) : takeAny()
      if (items.length === 0) break
      busy++
      options.send(items).finally(() => {
        busy--
        for (const key of keys ?? []) busyKeys.delete(key)
        pump()
      })
    }
    if (busy === 0 && waiting.length === 0) {
      const done = onIdle
      onIdle = []
      for (const resolve of done) resolve()
    }
  }

  return {
    add(item) {
      waiting.push(item)
      if (isScheduled) return
      isScheduled = true
      // Calls made in one turn of the event loop travel together.
      setImmediate(() => {
        isScheduled = false
        pump()
      })
    },
    idle() {
      if (busy === 0 && waiting.length === 0) return Promise.resolve()
      return new Promise(resolve => onIdle.push(resolve))
    },
  }
}
