/** Owns the SQL that this version of longshore ships: the files under `migrations/`, each with its checksum. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { ownFile } from '../runtime/own-files.ts'

export interface SqlFile {
  name: string
  sql: string
  checksum: string
}

export interface SchemaFiles {
  migrations: (SqlFile & { version: number })[]
  functions: SqlFile[]
}

let cached: SchemaFiles | undefined

/** The SQL that this version of longshore ships. */
export function schemaFiles(): SchemaFiles {
  if (cached) return cached
  const root = ownFile('migrations/')
  const read = (folder: URL): SqlFile[] =>
    readdirSync(folder)
      .filter(file => file.endsWith('.sql'))
      .map(file => {
        const sql = readFileSync(new URL(file, folder), 'utf8')
        return {
          name: file.slice(0, -'.sql'.length),
          sql,
          checksum: createHash('sha256').update(sql).digest('hex'),
        }
      })
  const functions = new URL('functions/', root)
  const byName = (a: SqlFile, b: SqlFile) => (a.name < b.name ? -1 : 1)
  cached = {
    migrations: read(root)
      .map(file => ({ ...file, version: Number(file.name.slice(0, 4)) }))
      .sort(byName),
    // A folder for each step of a job's way.
    functions: readdirSync(functions)
      .flatMap(step => read(new URL(`${step}/`, functions)))
      .sort(byName),
  }
  return cached
}
