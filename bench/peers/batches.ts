/**
 * Owns the floor's group commit: what comes while all lanes are busy makes up the next batch, so a lone item never waits
 * for one to fill. A copy of what `src/runtime/natural-batch.ts` does, on purpose: a yardstick must not change with what it measures.
 */
export function createBatches<Item>(
  lanes: number,
  most: number,
  send: (batch: Item[]) => Promise<unknown>,
): (item: Item) => void {
  let waiting: Item[] = []
  let busy = 0
  let isScheduled = false
  const pump = () => {
    while (busy < lanes && waiting.length > 0) {
      const batch = waiting.slice(0, most)
      waiting = waiting.slice(most)
      busy++
      send(batch).finally(() => {
        busy--
        pump()
      })
    }
  }
  return item => {
    waiting.push(item)
    if (isScheduled) return
    isScheduled = true
    // Items of one turn of the event loop travel together.
    setImmediate(() => {
      isScheduled = false
      pump()
    })
  }
}
