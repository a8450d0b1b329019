/**
 * What is known to fail, with the reason, for each of the two ways. Such a test is run, its title names the reason, and its failure is
 * printed instead of reported, and kept in `test/all-report.md`: whether it fails depends on who comes first. Its line goes with the
 * cause. Nothing else may fail.
 */
import { inject, it } from 'vitest'

const GUESSED_SLOTS =
  'takes in Redis go by a guess of the free slots, of each queue by itself, and who comes first gets them'

const KNOWN: Readonly<Record<'direct' | 'redis', Readonly<Record<string, string>>>> = {
  direct: {},
  redis: {
    'a limit that a backlog of another constraint keeps full': GUESSED_SLOTS,
    'a limit that a backlog of another queue keeps full': GUESSED_SLOTS,
    'a limit that a backlog of another tag keeps full': GUESSED_SLOTS,
    'the limit of a key that a backlog of another constraint keeps full': GUESSED_SLOTS,
    'goes to the better job, of another constraint and another worker': GUESSED_SLOTS,
    'goes to the better job, of another queue and another worker': GUESSED_SLOTS,
    'goes to the better job, of another tag and another worker': GUESSED_SLOTS,
    'fleets with limits': GUESSED_SLOTS,
  },
}

/** The bound of a test that is known to fail, so that it does so soon: what waits for ever exceeds any. */
const KNOWN_BOUND_MS = 2000

export interface Bound {
  boundMs?: number
}

/** A test that must pass, unless `name` is known to fail. */
export function itHolds(
  name: string,
  title: string,
  test: (bound: Bound) => Promise<void>,
  timeoutMs = 60_000,
): void {
  const reason = KNOWN[inject('dispatch')][name]
  if (reason === undefined) {
    it(title, () => test({}), timeoutMs)
    return
  }
  it(
    `${title} (KNOWN TO FAIL: ${reason})`,
    async ({ task }) => {
      const outcome = await test({ boundMs: KNOWN_BOUND_MS }).then(
        () => 'it did not fail this time',
        (error: Error) => firstLine(error.cause instanceof Error ? error.cause : error),
      )
      process.stdout.write(`known to fail: ${name}: ${outcome}\n`)
      task.meta.knownFailure = outcome
    },
    timeoutMs,
  )
}

const firstLine = ({ message }: Error) => message.split('\n', 1)[0] ?? ''
