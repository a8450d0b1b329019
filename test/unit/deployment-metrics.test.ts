import { describe, expect, it } from 'vitest'
import { addDeploymentMetrics } from '../../src/relay/deployment-metrics.ts'
import { createMetrics } from '../../src/runtime/prometheus.ts'
import { parsePrometheus } from '../support/prometheus-text.ts'

describe('the metrics of a deployment', () => {
  it('cost one read, however many scrape, also when it fails', async () => {
    let reads = 0
    const metrics = createMetrics('')
    addDeploymentMetrics(metrics, async () => {
      reads++
      throw new Error('Postgres is away')
    })
    const scrapes = await Promise.all(Array.from({ length: 20 }, () => metrics.render()))
    scrapes.push(await metrics.render())
    expect(reads).toBe(1)
    for (const { text } of scrapes) {
      const scrape = parsePrometheus(text)
      expect(scrape.figure('deployment_up')).toBe(0)
      expect(scrape.find('deployment_jobs')).toEqual([])
    }
  })

  it('do not keep a scrape waiting for a Postgres that says nothing', async () => {
    const metrics = createMetrics('')
    addDeploymentMetrics(metrics, () => new Promise(() => undefined))
    expect(parsePrometheus((await metrics.render()).text).figure('deployment_up')).toBe(0)
  })
})
