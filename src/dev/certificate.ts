/** Owns the TLS certificate of a store: made with the machine's `openssl` for one start, valid for loopback only. */
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { LongshoreError } from '../job/errors.ts'
import type { Guardian } from './guardian.ts'
import { giveToServer } from './server-user.ts'

export interface Certificate {
  readonly certFile: string
  readonly keyFile: string
  /** The certificate signs itself, so this PEM is also the authority to trust. */
  readonly ca: string
}

// A configuration of our own, because `-addext` is missing in old versions and the machine's file may add anything.
const CONFIG = `[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = longshore dev store
[extensions]
subjectAltName = IP:127.0.0.1, DNS:localhost
basicConstraints = critical, CA:true
`

export async function makeCertificate(guardian: Guardian, folder: string): Promise<Certificate> {
  const [certFile, keyFile, config] = ['server.crt', 'server.key', 'openssl.cnf'].map(name =>
    join(folder, name),
  ) as [string, string, string]
  await writeFile(config, CONFIG)
  const args = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-sha256', '-days', '30', '-config', config]
  const made = await guardian
    .run({
      command: 'openssl',
      args: [...args, '-keyout', keyFile, '-out', certFile],
      env: { PATH: process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin' },
    })
    .catch((error: Error) => ({ code: -1, output: error.message }))
  if (made.code !== 0) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `no TLS certificate can be made without the openssl command: install it (\`apt-get install openssl\`) or leave out { tls: true }. ${made.output}`,
    )
  }
  await chmod(keyFile, 0o600)
  await giveToServer(keyFile)
  return { certFile, keyFile, ca: await readFile(certFile, 'utf8') }
}
