/** `longshore properties`: show or declare the keys of the properties that jobs may ask of a worker. */
import type { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { listed } from '../job/shown.ts'
import { readPropertyKeys, setPropertyKeys } from '../postgres/property-keys.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { print, printJson } from './output.ts'

export function addPropertiesCommand(program: Command): void {
  const command = program
    .command('properties')
    .argument('[keys...]', 'the keys to declare, at most 3; they replace the declared ones')
    .description('show the property keys that jobs may ask for and workers may have, or declare them')
    .option('--none', 'declare no keys')
    .option('--json', 'print the keys as JSON')
  addDatabaseOptions(command).action(
    async (keys: string[], options: DatabaseOptions & { none?: boolean; json?: boolean }) => {
      if (options.none && keys.length > 0) {
        throw new LongshoreError('CONFIG_INVALID', `give keys or --none, not both; got ${listed(keys)}`)
      }
      const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
      const declared =
        keys.length > 0 || options.none
          ? await setPropertyKeys({ ...where, keys })
          : await readPropertyKeys(where)
      if (options.json) printJson({ schema: options.schema, keys: declared })
      else print(...(declared.length > 0 ? declared : ['no keys are declared']))
    },
  )
}
