import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeJson, parsePayload } from '../../src/job/json.ts'

const LIMIT = 1_000_000

describe('JSON that can be stored', () => {
  it('keeps every JSON value as it is', () => {
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        const encoded = encodeJson(value, LIMIT)
        if (!encoded.ok) throw new Error(encoded.problem)
        expect(JSON.parse(encoded.text)).toEqual(JSON.parse(JSON.stringify(value)))
        expect(encoded.text).not.toContain('\n')
      }),
    )
  })

  it('[X15] refuses a stored number that JavaScript cannot hold, and keeps long texts of digits', () => {
    const digits = '9'.repeat(309)
    expect(() => parsePayload(`{"a":[${digits}]}`)).toThrow(
      expect.objectContaining({
        code: 'PAYLOAD_INVALID',
        message: expect.stringContaining('a[0] is Infinity'),
      }),
    )
    expect(parsePayload(`"${digits}"`)).toBe(digits)
    expect(parsePayload('9'.repeat(308))).toBe(1e308)
  })

  it('refuses any text with NUL or half a surrogate, wherever it stands', () => {
    const bad = fc.constantFrom('\u0000', 'a\ud800b', '\udfff')
    fc.assert(
      fc.property(bad, fc.string(), (text, key) => {
        for (const value of [text, [text], { [key]: text }, { [text]: 1 }, { a: { b: [{ c: text }] } }]) {
          expect(encodeJson(value, LIMIT).ok).toBe(false)
        }
      }),
    )
  })

  it('counts bytes, not characters', () => {
    expect(encodeJson('ä'.repeat(10), 22).ok).toBe(true)
    expect(encodeJson('ä'.repeat(10), 21)).toEqual({
      ok: false,
      problem: expect.stringContaining('is 22 bytes'),
    })
  })

  it('leaves out undefined in objects, as JSON does, and says where it cannot', () => {
    expect(encodeJson({ a: undefined, b: 1 }, LIMIT)).toEqual({ ok: true, text: '{"b":1}' })
    expect(encodeJson({ a: [1, undefined] }, LIMIT)).toMatchObject({
      problem: expect.stringContaining('a[1] is undefined'),
    })
  })

  it('says that a literal backslash-u is only text', () => {
    expect(encodeJson('\\u0000 and \\ud800', LIMIT).ok).toBe(true)
  })

  it('turns a throwing toJSON into a problem', () => {
    const value = {
      toJSON() {
        throw new Error('not today')
      },
    }
    expect(encodeJson(value, LIMIT)).toEqual({ ok: false, problem: expect.stringContaining('not today') })
  })
})
