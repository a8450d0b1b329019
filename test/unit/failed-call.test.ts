import { describe, expect, it } from 'vitest'
import type { Outcome } from '../../src/postgres/settle-and-claim.ts'
import { OutcomeBound, recoveryFrom } from '../../src/worker/failed-call.ts'

const coded = (code: string) => Object.assign(new Error(`error ${code}`), { code })
const OUTAGE = coded('ECONNREFUSED')
const BAD_DATA = coded('22P05')
const OTHER = coded('42501')
const TOO_LONG = coded('57014')

const success = (result: string | null): Outcome => ({
  id: 'a' as Outcome['id'],
  leaseToken: '1',
  kind: 'succeeded',
  result,
})
const failure: Outcome = {
  id: 'b' as Outcome['id'],
  leaseToken: '1',
  kind: 'failed',
  error: { code: 'ERROR', message: 'as it was' },
}

describe('outcomes whose call has failed', () => {
  it('[S10] are sent again as they are when Postgres could not be reached', () => {
    const sent = [success('1'), failure]
    expect(recoveryFrom(OUTAGE, sent)).toEqual({ how: 'again', outcomes: sent, isOutage: true })
  })

  it('[S14] are sent one by one when Postgres refused several: one must not delay the others', () => {
    expect(recoveryFrom(BAD_DATA, [success('1'), failure])).toEqual({ how: 'one by one' })
  })

  it('become a failure that says so when Postgres refused the result', () => {
    expect(recoveryFrom(BAD_DATA, [success('"\\u0000"')])).toMatchObject({
      how: 'again',
      isOutage: false,
      outcomes: [{ kind: 'failed', error: { code: 'RESULT_REFUSED' } }],
    })
  })

  it('keep the code of an error that Postgres refused, and lose its text', () => {
    expect(recoveryFrom(BAD_DATA, [failure])).toMatchObject({
      outcomes: [
        { kind: 'failed', error: { code: 'ERROR', message: 'the error itself could not be stored' } },
      ],
    })
  })

  it('are kept as they are when it was not for what they hold', () => {
    expect(recoveryFrom(OTHER, [success('1')])).toMatchObject({ outcomes: [success('1')] })
    expect(recoveryFrom(BAD_DATA, [success(null)])).toMatchObject({ outcomes: [success(null)] })
  })
})

describe('how many outcomes travel in one call', () => {
  it('[S10] is half as many after one that took too long, down to one, and slowly more again', () => {
    const bound = new OutcomeBound()
    expect(bound.most).toBe(1000)
    bound.failed(TOO_LONG, 1000)
    expect(bound.most).toBe(500)
    bound.failed(TOO_LONG, 3)
    expect(bound.most).toBe(2)
    bound.failed(TOO_LONG, 2)
    expect(bound.most).toBe(1)
    bound.failed(TOO_LONG, 1)
    expect(bound.most).toBe(1)
    bound.settled(1)
    expect(bound.most).toBe(2)
    for (let n = 0; n < 100; n++) bound.settled(bound.most)
    expect(bound.most).toBe(1000)
  })

  it('stays after a failure of another kind, and after a call that was smaller', () => {
    const bound = new OutcomeBound()
    bound.failed(OUTAGE, 1000)
    expect(bound.most).toBe(1000)
    bound.failed(TOO_LONG, 1000)
    bound.settled(499)
    expect(bound.most).toBe(500)
  })
})
