/** Owns the order of calls that have to be prepared first: however long that takes, calls with one key keep their order. */

export type InCallOrder = <T, R>(key: string, preparing: Promise<T>, goOn: (prepared: T) => R) => Promise<R>

/** `goOn` is called when the call is prepared and all earlier ones of its key have gone on, or have failed. */
export function createCallOrder(): InCallOrder {
  const last = new Map<string, Promise<unknown>>()
  return async (key, preparing, goOn) => {
    const before = last.get(key)
    // In a box: what goes on is not waited for by the next.
    const going = Promise.allSettled([before, preparing]).then(async () => ({ on: goOn(await preparing) }))
    const gone = going.catch(() => undefined) // the caller is told
    last.set(key, gone)
    gone.then(() => {
      if (last.get(key) === gone) last.delete(key)
    })
    return (await going).on
  }
}
