import { describe, expect, it } from 'vitest'
import { isNewer, ownRelease } from '../../src/postgres/release.ts'

describe('a version', () => {
  it.each([
    ['0.1.1', '0.1.0'],
    ['0.2.0', '0.1.9'],
    ['0.10.0', '0.9.9'],
    ['1.0.0', '0.99.99'],
    ['1.0.0', '1.0.0-beta.1'],
    ['1.0.1-beta.1', '1.0.0'],
    ['0.0.1', 'not a version'],
  ])('%s is newer than %s', (newer, older) => {
    expect(isNewer(newer, older)).toBe(true)
    expect(isNewer(older, newer)).toBe(false)
  })

  it('is not newer than itself', () => {
    for (const version of ['0.1.0', '1.0.0-beta.1']) expect(isNewer(version, version)).toBe(false)
  })

  it('serves itself', () => {
    const { version, servesFrom } = ownRelease()
    expect(isNewer(servesFrom, version)).toBe(false)
  })
})
