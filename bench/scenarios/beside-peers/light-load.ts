/** P6: how soon does a lone job start on an idle worker? */
import { PACED_FIGURES, pace } from '../../loads/paced.ts'
import type { Scenario } from '../scenario.ts'

const ONE_EACH_20_MS = 50

export const latency: Scenario = {
  id: 'latency',
  question: 'P6 one job each 20 ms',
  figures: PACED_FIGURES,
  load: 'light',
  measure: setting => pace(setting, ONE_EACH_20_MS, setting.sizes.lightLoadMs),
}
