// Users of NATS for tests, without NATS's own tools: nkeys, and an operator with an account and a user whose JWT has permissions.

import { createAccount, createOperator, createUser, type KeyPair } from "@nats-io/nkeys";

const decoder = new TextDecoder();

export function newUser(): { readonly publicKey: string; readonly seed: string } {
  const pair = createUser();
  return { publicKey: pair.getPublicKey(), seed: decoder.decode(pair.getSeed()) };
}

export interface Permissions {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
  /** It may answer what it is asked. */
  readonly responds?: boolean;
}

/** A server's configuration that trusts an operator, and the .creds files of users with these permissions. */
export function operatorFiles<Name extends string>(
  users: Readonly<Record<Name, Permissions>>,
): { readonly config: string; readonly creds: Readonly<Record<Name, string>> } {
  const [operator, account] = [createOperator(), createAccount()];
  const unlimited = { subs: -1, conn: -1, leaf: -1, imports: -1, exports: -1, data: -1 };
  const operatorJwt = jwt(operator, operator, { type: "operator", version: 2 });
  const accountJwt = jwt(operator, account, {
    ...{ type: "account", version: 2 },
    limits: { ...unlimited, payload: -1, wildcards: true },
  });
  const config = [
    `operator: ${operatorJwt}`,
    "resolver: MEMORY",
    `resolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
  ];
  const creds = Object.entries<Permissions>(users).map(([name, allow]) => [
    name,
    credsOf(account, allow),
  ]);
  return { config: config.join("\n"), creds: Object.fromEntries(creds) };
}

function credsOf(account: KeyPair, { publish, subscribe, responds }: Permissions): string {
  const user = createUser();
  const text = jwt(account, user, {
    ...{ type: "user", version: 2, subs: -1, data: -1, payload: -1 },
    ...{ pub: { allow: publish }, sub: { allow: subscribe } },
    ...(responds && { resp: { max: 1, ttl: 0 } }),
  });
  return [
    ...["-----BEGIN NATS USER JWT-----", text, "------END NATS USER JWT------", ""],
    ...["-----BEGIN USER NKEY SEED-----", decoder.decode(user.getSeed())],
    ...["------END USER NKEY SEED------", ""],
  ].join("\n");
}

function jwt(issuer: KeyPair, subject: KeyPair, nats: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ typ: "JWT", alg: "ed25519-nkey" })}.${part({
    ...{ jti: "test", iat: Math.floor(Date.now() / 1000), name: "test" },
    ...{ iss: issuer.getPublicKey(), sub: subject.getPublicKey(), nats },
  })}`;
  return `${text}.${Buffer.from(issuer.sign(Buffer.from(text))).toString("base64url")}`;
}
