/** Owns the configuration our Postgres servers start with; it lies outside of the data folder and is new each start. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Certificate } from '../certificate.ts'

export type PostgresSettings = Readonly<Record<string, string | number | boolean>>

interface Plan {
  readonly folder: string
  readonly dataDir: string
  readonly certificate: Certificate | undefined
  readonly settings: PostgresSettings
}

/** `fsync` and `synchronous_commit` stay on: what a test learns about durability has to be true. */
const DEFAULTS: PostgresSettings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: 300,
  shared_buffers: '128MB',
  // A replica that was killed for a while can still catch up.
  wal_keep_size: '256MB',
}

export async function writeConfiguration(plan: Plan): Promise<string> {
  const file = join(plan.folder, 'postgresql.conf')
  const hba = join(plan.folder, 'pg_hba.conf')
  const kind = plan.certificate ? 'hostssl' : 'host'
  const settings: PostgresSettings = {
    ...DEFAULTS,
    hba_file: hba,
    ident_file: join(plan.dataDir, 'pg_ident.conf'),
    ...(plan.certificate && {
      ssl: true,
      ssl_cert_file: plan.certificate.certFile,
      ssl_key_file: plan.certificate.keyFile,
    }),
    ...plan.settings,
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${quoted(value)}`)
  await writeFile(hba, `${kind} all all 127.0.0.1/32 trust\n${kind} replication all 127.0.0.1/32 trust\n`, {
    mode: 0o644,
  })
  // What initdb found out about this machine comes first.
  const initial = `include ${quoted(join(plan.dataDir, 'postgresql.conf'))}\n`
  await writeFile(file, `${initial}${lines.join('\n')}\n`, { mode: 0o644 })
  return file
}

function quoted(value: string | number | boolean): string {
  const text = typeof value === 'boolean' ? (value ? 'on' : 'off') : String(value)
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`
}
