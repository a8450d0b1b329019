import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  checkPropertyKeys,
  constraintTag,
  constraintTags,
  parseConstraintTag,
} from '../../src/job/constraints.ts'
import { LongshoreError } from '../../src/job/errors.ts'
import { constraintsArbitrary } from '../support/constraint-arbitraries.ts'

const given = constraintsArbitrary
const isEqual = (a: Record<string, string>, b: Record<string, string>) =>
  Object.keys(a).length === Object.keys(b).length && asksFor(a, b)
const asksFor = (asked: Record<string, string>, had: Record<string, string>) =>
  Object.entries(asked).every(([key, value]) => Object.hasOwn(had, key) && had[key] === value)

describe('a constraint tag', () => {
  it.each([
    [undefined, 'c:'],
    [{}, 'c:'],
    [{ mem: 'high', gpu: 'a100' }, 'c:gpu=a100,mem=high'],
    [{ a_: '1', a0: '2', a: '3' }, 'c:a=3,a0=2,a_=1'],
    [{ gpu: 'a,b=c%d' }, 'c:gpu=a%2Cb%3Dc%25d'],
    [{ gpu: ' ~!:;+' }, 'c:gpu= ~!:;+'],
    [{ gpu: 'ü€😀\n\x7f' }, 'c:gpu=%C3%BC%E2%82%AC%F0%9F%98%80%0A%7F'],
  ])('[C4] of %j is %s', (constraints, tag) => {
    expect(constraintTag(constraints)).toBe(tag)
  })

  it('[C4] equals another if, and only if, the constraints are equal', () => {
    fc.assert(
      fc.property(given, given, (a, b) => {
        expect(constraintTag(a) === constraintTag(b)).toBe(isEqual(a, b))
      }),
      { numRuns: 2000 },
    )
  })

  it('[C4] does not depend on the order of declaration', () => {
    fc.assert(
      fc.property(given, constraints => {
        const reversed = Object.fromEntries(Object.entries(constraints).reverse())
        expect(constraintTag(reversed)).toBe(constraintTag(constraints))
      }),
    )
  })

  it('[C4] is printable ASCII, and says the constraints that it was made of', () => {
    fc.assert(
      fc.property(given, constraints => {
        const tag = constraintTag(constraints)
        expect(tag).toMatch(/^c:[ -~]*$/)
        expect(parseConstraintTag(tag)).toEqual(constraints)
      }),
    )
  })

  it.each([
    [{ GPU: 'a' }, '"GPU" is not a valid key'],
    [{ '': 'a' }, '"" is not a valid key'],
    [{ ['k'.repeat(41)]: 'a' }, 'is not a valid key: use at most 40'],
    [JSON.parse('{"__proto__": "a"}'), '"__proto__" is not a valid key'],
    [{ gpu: '' }, 'constraints.gpu must have 1 to 100 characters; got 0'],
    [{ gpu: 'x'.repeat(101) }, 'must have 1 to 100 characters; got 101'],
    [{ gpu: 1 }, 'constraints.gpu must be a text; got 1'],
    [{ gpu: undefined }, 'constraints.gpu must be a text; got undefined'],
    [{ gpu: null }, 'constraints.gpu must be a text; got null'],
    [{ gpu: 'a\ud800' }, 'half of a surrogate pair'],
    [{ gpu: 'a\u0000' }, 'holds \\u0000'],
    [{ gpu: '😀'.repeat(50) }, 'at most 500 are possible'],
    [{ a: '1', b: '2', c: '3', d: '4' }, 'a, b, c, d are 4 keys, at most 3'],
    [null, 'must be an object'],
    ['gpu', 'must be an object'],
    [['gpu'], 'must be an object'],
    [new Map([['gpu', 'a']]), 'must be an object'],
  ])('refuses %j, and says why', (constraints, message) => {
    const make = () => constraintTag(constraints as Record<string, string>)
    expect(make).toThrow(message)
    expect(make).toThrow(LongshoreError)
    expect(make).toThrow(expect.objectContaining({ code: 'CONSTRAINT_INVALID' }))
  })

  it('counts characters, not halves of them, and takes a hundred', () => {
    expect(constraintTag({ gpu: 'x'.repeat(100) })).toHaveLength(106)
    expect(constraintTag({ gpu: `${'x'.repeat(99)}😀` })).toHaveLength(117)
  })
})

describe("a worker's constraint tags", () => {
  it('[C3] of gpu and mem are exactly 4, none naming region', () => {
    expect(constraintTags({ mem: 'high', gpu: 'a100' })).toEqual([
      'c:',
      'c:gpu=a100',
      'c:mem=high',
      'c:gpu=a100,mem=high',
    ])
  })

  it('[C3] are the power set of what it has, `c:` first, at most 8', () => {
    expect(constraintTags(undefined)).toEqual(['c:'])
    fc.assert(
      fc.property(given, properties => {
        const tags = constraintTags(properties)
        expect(tags[0]).toBe('c:')
        expect(new Set(tags).size).toBe(2 ** Object.keys(properties).length)
      }),
    )
  })

  it("[C2] hold a job's tag if, and only if, each of its constraints equals the worker's property", () => {
    // Jobs that ask for what the worker has, and for something a little different.
    const pair = given.chain(properties =>
      fc.tuple(
        fc.constant(properties),
        fc.oneof(
          given,
          fc.subarray(Object.entries(properties)).map(entries => Object.fromEntries(entries)),
          given.map(other => ({ ...Object.fromEntries(Object.entries(properties).slice(0, 1)), ...other })),
        ),
      ),
    )
    fc.assert(
      fc.property(pair, ([properties, constraints]) => {
        fc.pre(Object.keys(constraints).length <= 3)
        expect(constraintTags(properties).includes(constraintTag(constraints))).toBe(
          asksFor(constraints, properties),
        )
      }),
      { numRuns: 2000 },
    )
  })

  it('are refused by the name that the worker gave them', () => {
    expect(() => constraintTags({ gpu: '' })).toThrow('properties.gpu must have 1 to 100 characters')
  })
})

describe('property keys', () => {
  it('[C1] are at most three words, each once', () => {
    expect(checkPropertyKeys([])).toEqual([])
    expect(checkPropertyKeys(['gpu', 'mem', 'region'])).toEqual(['gpu', 'mem', 'region'])
    expect(() => checkPropertyKeys(['gpu', 'mem', 'region', 'zone'])).toThrow(
      'gpu, mem, region, zone are 4 keys, at most 3 are possible',
    )
    expect(() => checkPropertyKeys(['gpu', 'gpu'])).toThrow('gpu is named twice')
    expect(() => checkPropertyKeys(['gpu,mem'])).toThrow('"gpu,mem" is not a valid key')
  })
})
