/**
 * Loaded ahead of a process (`--import`): its `Date` is wrong by LONGSHORE_CLOCK_OFFSET_MS, and by what its parent says later.
 * Threads of the process begin with the same offset.
 */
const RealDate = Date
let offsetMs = Number(process.env['LONGSHORE_CLOCK_OFFSET_MS'] ?? 0)

globalThis.Date = class extends RealDate {
  constructor(...args) {
    if (args.length === 0) super(RealDate.now() + offsetMs)
    else super(...args)
  }
  static now() {
    return RealDate.now() + offsetMs
  }
}

process.on('message', message => {
  if (typeof message?.clockOffsetMs === 'number') offsetMs = message.clockOffsetMs
})
// Who listens to its parent goes on for ever otherwise.
process.channel?.unref()
