/** Constraints and properties for property tests: few enough to meet each other, strange enough to matter. */
import fc from 'fast-check'

const key = fc.oneof(
  fc.constantFrom('gpu', 'mem', 'region', 'a', 'a_', 'a0', 'constructor'),
  fc.stringMatching(/^[a-z][a-z0-9_]{0,39}$/),
)
const value = fc.oneof(
  fc.constantFrom(
    'a100',
    'h100',
    'a',
    ' ',
    ',',
    '=',
    '%',
    '%2C',
    'a,mem=b',
    'ü',
    'e\u0301',
    '😀',
    '\n',
    '\x7f',
  ),
  // At most 96 characters when encoded, so that three of them fit a tag.
  fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }).filter(text => !text.includes('\u0000')),
)

export const constraintsArbitrary = fc
  .uniqueArray(fc.tuple(key, value), { maxLength: 3, selector: ([name]) => name })
  .map(entries => Object.fromEntries(entries) as Record<string, string>)
