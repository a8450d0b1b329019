import { describe, expect, it } from 'vitest'
import { createMetrics } from '../../src/runtime/prometheus.ts'
import { parsePrometheus } from '../support/prometheus-text.ts'

describe('the strict parser of the tests', () => {
  const gauge = (sample: string) => `# HELP a Text\n# TYPE a gauge\n${sample}\n`

  it('reads what is allowed', () => {
    const scrape = parsePrometheus(gauge('a{x="1\\n\\"\\\\,}",y=""} -1.5e3'))
    expect(scrape.figure('a', { x: '1\n"\\,}', y: '' })).toBe(-1500)
    expect(scrape.families.get('a')).toMatchObject({ type: 'gauge', help: 'Text' })
  })

  it.each([
    ['no end of the last line', 'a 1'],
    ['no HELP', '# TYPE a gauge\na 1\n'],
    ['no TYPE', '# HELP a Text\n'],
    ['a sample of another family', gauge('b 1')],
    ['a series twice', gauge('a{x="1",y="2"} 1\na{y="2",x="1"} 1')],
    ['a label twice', gauge('a{x="1",x="2"} 1')],
    ['an unknown escape', gauge('a{x="\\t"} 1')],
    ['an open quote', gauge('a{x="} 1')],
    ['a comma too many', gauge('a{x="1",} 1')],
    ['no number', gauge('a NaN')],
    ['a counter without _total', '# HELP a Text\n# TYPE a counter\na 1\n'],
    ['a family twice', `${gauge('a 1')}${gauge('a 2')}`],
    ...[
      ['no +Inf', 'a_bucket{le="1"} 1\na_sum 1\na_count 1'],
      ['a count that is not that of +Inf', 'a_bucket{le="+Inf"} 1\na_sum 1\na_count 2'],
      ['buckets that fall', 'a_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1'],
      [
        'bounds out of order',
        'a_bucket{le="2"} 0\na_bucket{le="1"} 0\na_bucket{le="+Inf"} 0\na_sum 0\na_count 0',
      ],
      ['no sum', 'a_bucket{le="+Inf"} 1\na_count 1'],
    ].map(([what, samples]) => [what, `# HELP a Text\n# TYPE a histogram\n${samples}\n`]),
  ])('refuses %s', (_, text = '') => {
    expect(() => parsePrometheus(text)).toThrow()
  })
})

describe('metrics', () => {
  it('[W11] are read when they are scraped, with any text in their labels', async () => {
    const metrics = createMetrics('mine_')
    let value = 1
    const labels = { task: 'a "b" \\n \\ c\nd, {e}' }
    metrics.gauge('now', 'Text with \\ in it', () => value)
    metrics.counter('seen_total', 'Text', async () => [{ labels, value: 2 }])
    metrics.gauge('nothing', 'Text', () => [])
    const first = parsePrometheus((await metrics.render()).text)
    value = 0.1
    const { contentType, text } = await metrics.render()
    const second = parsePrometheus(text)
    expect(contentType).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect([first, second].map(scrape => scrape.figure('mine_now'))).toEqual([1, 0.1])
    expect(second.figure('mine_seen_total', labels)).toBe(2)
    expect(second.families.get('mine_nothing')).toMatchObject({ series: [] })
    expect(second.families.get('mine_now')).toMatchObject({ help: 'Text with \\ in it' })
  })

  it('[W11] show distributions as cumulative buckets', async () => {
    const metrics = createMetrics('')
    metrics.histogram('size', 'Text', () => [
      { bounds: [0, 0.5], counts: [1, 0, 3], sum: 12, labels: { task: 'x' } },
      { bounds: [0, 0.5], counts: [0, 0, 0], sum: 0, labels: { task: 'y' } },
    ])
    const scrape = parsePrometheus((await metrics.render()).text)
    const buckets = scrape.find('size_bucket', { task: 'x' })
    expect(buckets.map(({ labels, value }) => [labels['le'], value])).toEqual([
      ['0', 1],
      ['0.5', 1],
      ['+Inf', 4],
    ])
    expect(scrape.figure('size_count', { task: 'x' })).toBe(4)
    expect(scrape.figure('size_sum', { task: 'x' })).toBe(12)
  })
})
