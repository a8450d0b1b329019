/**
 * Loaded before anything else (`node --import`): the clock of this process and of its threads is off by `CLOCK_OFF_BY_MS`. Timers and
 * `performance.now()` go on as they do when somebody sets the clock of a machine.
 */
const offMs = Number(process.env.CLOCK_OFF_BY_MS)
const RealDate = Date
const now = () => RealDate.now() + offMs

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, self) => Reflect.construct(target, args.length > 0 ? args : [now()], self),
  apply: () => new RealDate(now()).toString(),
  get: (target, name, self) => (name === 'now' ? now : Reflect.get(target, name, self)),
})
