// HTTPS in Node: a check of a key and a certificate before a server begins, with the reason in words, and the server's constructor.

import { createPrivateKey, X509Certificate } from "node:crypto";

export { createServer as createTlsServer } from "node:https";

export interface TlsFault {
  readonly of: "key" | "cert" | "both";
  readonly why: string;
}

/** What is wrong with them; undefined: they belong together. No sentence shows a part of the key. */
export function tlsFault(key: string, cert: string): TlsFault | undefined {
  const form = (what: string) => `got no ${what} in PEM, expected a file with "-----BEGIN`;
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(key)) {
    return { of: "key", why: `${form("private key")} PRIVATE KEY-----" in it` };
  }
  if (/ENCRYPTED/.test(key)) {
    return {
      of: "key",
      why: "got a key with a passphrase, expected one without. Write one with: openssl pkey -in KEY -out NEW",
    };
  }
  if (!cert.includes("-----BEGIN CERTIFICATE-----")) {
    return { of: "cert", why: `${form("certificate")} CERTIFICATE-----" in it` };
  }
  let secret: ReturnType<typeof createPrivateKey>;
  try {
    secret = createPrivateKey(key);
  } catch {
    return { of: "key", why: "got a damaged private key, expected one that OpenSSL can read" };
  }
  let first: X509Certificate;
  try {
    first = new X509Certificate(cert);
  } catch {
    return { of: "cert", why: "got a damaged certificate, expected one that OpenSSL can read" };
  }
  if (first.checkPrivateKey(secret)) return undefined;
  return {
    of: "both",
    why: "got a key and a certificate that do not belong together, expected the key of the first certificate in the file",
  };
}
