// Certificates for tests of TLS: an authority, and a server's and a client's that it signed, made by openssl.

import { execFileSync, spawnSync } from "node:child_process";

export const hasOpenssl: boolean = spawnSync("openssl", ["version"]).status === 0;

/** Writes ca.pem, server.pem, server.key, client.pem and client.key. */
export function certificates(folder: string): void {
  const openssl = (text: string): void =>
    void execFileSync("openssl", text.split(" "), { cwd: folder, stdio: "ignore" });
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
  openssl(`req -x509 ${key} -keyout ca.key -out ca.pem -days 1 -subj /CN=ca`);
  for (const name of ["server", "client"]) {
    const names = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(`req ${key} -keyout ${name}.key -out ${name}.csr -subj /CN=${name} ${names}`);
    const by = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -copy_extensions copy";
    openssl(`x509 -req -in ${name}.csr ${by} -out ${name}.pem`);
  }
}
