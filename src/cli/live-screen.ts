/**
 * Owns a terminal that is drawn over again and again: the alternate screen, which leaves what stood there before, and the keys. However
 * the process ends, short of SIGKILL, the terminal is as it was.
 */
export interface LiveScreen {
  readonly size: { columns: number; rows: number }
  /** All at once, so that half a frame is never seen. */
  draw(lines: readonly string[]): void
  /** Resolves when q or Ctrl-C was pressed, or on SIGINT or SIGTERM. */
  readonly ended: Promise<void>
  restore(): void
}

const ESC = '\x1b['
/** Alternate screen, no cursor, and lines that are too long after all do not wrap. */
const ENTER = `${ESC}?1049h${ESC}?25l${ESC}?7l${ESC}2J`
const LEAVE = `${ESC}0m${ESC}?7h${ESC}?25h${ESC}?1049l`
/** Terminals that know it show what is between at once; others pass it over. */
const BEGIN = `${ESC}?2026h${ESC}H`
const END = `${ESC}J${ESC}?2026l`

/** Ctrl-C and Ctrl-D come as keys while the terminal is raw. */
const QUIT = new Set(['q', 'Q', '\x03', '\x04'])

export function openScreen(onResize: () => void): LiveScreen {
  const { stdin, stdout } = process
  let isOpen = true
  let end: () => void = () => undefined
  const ended = new Promise<void>(resolve => {
    end = resolve
  })
  const onKey = (keys: Buffer) => {
    if ([...keys.toString('latin1')].some(key => QUIT.has(key))) end()
  }
  const restore = () => {
    if (!isOpen) return
    isOpen = false
    stdout.write(LEAVE)
    stdout.off('resize', onResize)
    process.off('SIGINT', end).off('SIGTERM', end).off('exit', restore)
    if (!stdin.isTTY) return
    stdin.off('data', onKey)
    stdin.setRawMode(false)
    stdin.pause()
  }
  // Also after an uncaught error.
  process.on('exit', restore)
  process.on('SIGINT', end).on('SIGTERM', end)
  stdout.on('resize', onResize)
  // The terminal is gone.
  stdout.on('error', end)
  if (stdin.isTTY) {
    stdin.setRawMode(true)
    stdin.on('data', onKey)
    stdin.on('end', end)
    stdin.resume()
  }
  stdout.write(ENTER)
  return {
    get size() {
      // A terminal that tells no size, such as a serial line, says 0.
      return { columns: stdout.columns || 80, rows: stdout.rows || 24 }
    },
    draw(lines) {
      // Erased before, not behind: behind a line that fills the width its last column would go.
      if (isOpen) stdout.write(`${BEGIN}${lines.map(line => `${ESC}K${line}`).join('\r\n')}${END}`)
    },
    ended,
    restore,
  }
}
