/** P9: do constraints cost speed? Eight constraint tags and three workers that can run different ones of them. */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

const REGIONS = ['eu', 'us', 'ap']
const PROPERTIES = REGIONS.map(region => ({ gpu: 'a100', mem: '64', region }))
const CONSTRAINTS: Readonly<Record<string, string>>[] = [
  {},
  { gpu: 'a100' },
  { mem: '64' },
  { gpu: 'a100', mem: '64' },
  ...REGIONS.map(region => ({ region })),
  { gpu: 'a100', region: 'eu' },
]

export const constraints: Scenario = {
  id: 'constraints',
  question: 'P9 drain of eight constraint tags, three worker processes',
  figures: [JOBS_PER_SECOND],
  variants: [
    { name: 'eight tags', workload: { constraints: CONSTRAINTS, properties: PROPERTIES } },
    { name: 'one tag', workload: { constraints: [{}], properties: PROPERTIES } },
  ],
  measure: setting => drain(setting, 3),
}
