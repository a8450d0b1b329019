import { expect, it } from 'vitest'
import { type Outcome, reportOf } from '../support/all-report.ts'

const report = (outcomes: Outcome[], errors: string[] = [], changed: string[] = []) =>
  reportOf({
    commit: 'abc',
    changed,
    began: new Date(0),
    seconds: 1439.7,
    machine: '2 cores',
    outcomes,
    errors,
  }).split('\n')

it('says of which commit it is, when it was and how long it took', () => {
  expect(report([])).toEqual(
    expect.arrayContaining(['- commit: abc', '- began: 1970-01-01T00:00:00.000Z', '- took: 24 min 0 s']),
  )
  expect(report([], [], ['src/a.ts', 'b.md'])).toContain('- commit: abc, with changes of src/a.ts, b.md')
})

it('counts what is known to fail apart, and names it and whatever failed', () => {
  const lines = report(
    [
      { title: 'a', state: 'passed' },
      { title: 'b', state: 'failed' },
      { title: 'c', state: 'passed', knownFailure: 'it stalled' },
      { title: 'd', state: 'skipped' },
      { title: 'e', state: 'pending' },
    ],
    ['a file that does not load'],
  )
  expect(lines).toContain('- tests: 1 passed, 1 failed, 1 known to fail, 1 skipped, 1 not reached')
  expect(lines.slice(lines.indexOf('## Failed'))).toEqual([
    '## Failed',
    '',
    '- b',
    '',
    '## Other errors',
    '',
    '- a file that does not load',
    '',
    '## Known to fail',
    '',
    '- c: it stalled',
    '',
  ])
})
