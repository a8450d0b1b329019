/** Owns keeping a fixed number of calls under way. */

/** Calls `call(0)`, `call(1)`, … with `width` of them in flight, while `goesOn(i)` says so. Returns how many were made. */
export async function keepInFlight(
  width: number,
  goesOn: (i: number) => boolean,
  call: (i: number) => Promise<unknown>,
): Promise<number> {
  let next = 0
  const lane = async () => {
    while (goesOn(next)) await call(next++)
  }
  await Promise.all(Array.from({ length: width }, lane))
  return next
}
