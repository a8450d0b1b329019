/** Owns how figures that are kept elsewhere read in Prometheus: they are asked for at each scrape, so that keeping them costs no more. */
import { Registry } from 'prom-client'

/** What a scrape is answered with. */
export interface Exposition {
  readonly contentType: string
  readonly text: string
}

export interface Sample {
  readonly value: number
  readonly labels?: Readonly<Record<string, string>>
}

/** Counts by upper bounds, one more for what is above them all. */
export interface Distribution {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  readonly sum: number
  readonly labels?: Readonly<Record<string, string>>
}

/** A number, or one for each set of labels. */
export type Reading = number | readonly Sample[]
type Read<T> = () => T | Promise<T>

export interface Metrics {
  gauge(name: string, help: string, read: Read<Reading>): void
  /** Its name ends in `_total`. */
  counter(name: string, help: string, read: Read<Reading>): void
  histogram(name: string, help: string, read: Read<readonly Distribution[]>): void
  /** As of now. */
  render(): Promise<Exposition>
}

interface NamedSample extends Sample {
  readonly metricName?: string
}

/** `prefix` stands in front of every name. */
export function createMetrics(prefix: string): Metrics {
  const registry = new Registry()
  const add = (type: string, name: string, help: string, read: Read<readonly NamedSample[]>) => {
    const facts = { name: `${prefix}${name}`, help, type, aggregator: 'sum' }
    // All that the registry asks of a metric. Its own kinds keep figures a second time, and cannot be set to a distribution.
    const metric = { ...facts, get: async () => ({ ...facts, values: await read() }), reset: () => undefined }
    registry.registerMetric(metric as never)
  }
  const samples = (reading: Reading) => (typeof reading === 'number' ? [{ value: reading }] : reading)
  return {
    gauge: (name, help, read) => add('gauge', name, help, async () => samples(await read())),
    counter: (name, help, read) => add('counter', name, help, async () => samples(await read())),
    histogram: (name, help, read) =>
      add('histogram', name, help, async () =>
        (await read()).flatMap(distribution => inBuckets(`${prefix}${name}`, distribution)),
      ),
    render: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
  }
}

/** Each bucket counts what is in those below it too. */
function inBuckets(name: string, { bounds, counts, sum, labels }: Distribution): NamedSample[] {
  let total = 0
  const buckets = counts.map((count, at) => {
    total += count
    const le = at < bounds.length ? String(bounds[at]) : '+Inf'
    return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: total }
  })
  const own = labels ? { labels } : {}
  return [
    ...buckets,
    { metricName: `${name}_sum`, ...own, value: sum },
    { metricName: `${name}_count`, ...own, value: total },
  ]
}
