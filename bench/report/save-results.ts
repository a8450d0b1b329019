/** Owns `bench/results/`: of the last run of each set its record, its report and its charts. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Scenario } from '../scenarios/scenario.ts'
import { drawCharts } from './charts.ts'
import { writeReport } from './report.ts'
import type { RunRecord } from './run-record.ts'

const folder = fileURLToPath(new URL('../results/', import.meta.url))

/** Returns the report's file. */
export function saveResults(name: string, record: RunRecord, scenarios: readonly Scenario[]): string {
  mkdirSync(folder, { recursive: true })
  const charts = drawCharts(scenarios, record.summary).map(({ scenario, svg }) => ({
    scenario,
    svg,
    file: `${name}-${scenario.id}.svg`,
  }))
  for (const { file, svg } of charts) writeFileSync(`${folder}${file}`, svg)
  saveJson(name, record)
  writeFileSync(`${folder}${name}.md`, writeReport(name, record, scenarios, charts))
  return `${folder}${name}.md`
}

export function saveJson(name: string, content: object): string {
  mkdirSync(folder, { recursive: true })
  const file = `${folder}${name}.json`
  writeFileSync(file, `${JSON.stringify(content, null, 2)}\n`)
  return file
}
