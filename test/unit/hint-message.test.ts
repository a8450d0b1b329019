import { expect, it } from 'vitest'
import { newJobId } from '../../src/job/job-id.ts'
import { MOST_HINTED, readHint, writeHint } from '../../src/redis/hint-message.ts'

const ID = '0190a8c2-0000-7000-8000-000000000001'
const job = () => ({ id: newJobId(), lane: 2 ** 31 - 1, score: String(Number.MAX_SAFE_INTEGER) })

it.each(['default', 'a b', 'mails/{eu}:1 %', 'Größe 🚢', `${'🚢'.repeat(100)}`])(
  '[X15] a hint of queue %j reads as it was written',
  queue => {
    const jobs = Array.from({ length: MOST_HINTED }, job)
    expect(readHint(writeHint(queue, jobs))).toEqual({ queue, jobs })
  },
)

it.each([
  '',
  ' ',
  '1',
  '1 default',
  '1 default ',
  `2 default ${ID} 1 1`,
  `01 default ${ID} 1 1`,
  ` 1 default ${ID} 1 1`,
  `1 default ${ID} 1 1 `,
  `1  default ${ID} 1 1`,
  `1 default ${ID} 1`,
  `1 default ${ID} 1 1 ${ID}`,
  `1 default ${ID.toUpperCase()}F 1 1`,
  `1 default ${ID}\n 1 1`,
  `1 default x 1 1`,
  `1 default ${ID} -1 1`,
  `1 default ${ID} 1.5 1`,
  `1 default ${ID} ${2 ** 31} 1`,
  `1 default ${ID} 01 1`,
  `1 default ${ID} 1 -1`,
  `1 default ${ID} 1 1e3`,
  `1 default ${ID} 1 ${2 ** 53}`,
  `1 default ${ID} 1 ${'9'.repeat(400)}`,
  `1 %zz ${ID} 1 1`,
  `1 %ff ${ID} 1 1`,
  `1 default${` ${ID} 1 1`.repeat(MOST_HINTED + 1)}`,
  `1 ${'x'.repeat(1_000_000)} ${ID} 1 1`,
  '\u0000'.repeat(20_000),
])('[X15] no hint is %j', text => {
  expect(readHint(text)).toBeUndefined()
})
