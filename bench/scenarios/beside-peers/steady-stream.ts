/** P7: do jobs still start at once when 1,000 of them come a second, one by one? */
import { PACED_FIGURES, pace } from '../../loads/paced.ts'
import type { Scenario } from '../scenario.ts'

export const stream: Scenario = {
  id: 'stream',
  question: 'P7 1,000 single enqueues a second',
  figures: PACED_FIGURES,
  load: 'stream',
  measure: setting => pace(setting, 1000, setting.sizes.streamMs),
}
