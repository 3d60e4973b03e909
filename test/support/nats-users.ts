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
}

/** A server's configuration that trusts an operator, and the .creds file of a user with these permissions. */
export function operatorFiles(allow: Permissions): {
  readonly config: string;
  readonly creds: string;
} {
  const [operator, account, user] = [createOperator(), createAccount(), createUser()];
  const unlimited = { subs: -1, conn: -1, leaf: -1, imports: -1, exports: -1, data: -1 };
  const operatorJwt = jwt(operator, operator, { type: "operator", version: 2 });
  const accountJwt = jwt(operator, account, {
    ...{ type: "account", version: 2 },
    limits: { ...unlimited, payload: -1, wildcards: true },
  });
  const userJwt = jwt(account, user, {
    ...{ type: "user", version: 2, subs: -1, data: -1, payload: -1 },
    ...{ pub: { allow: allow.publish }, sub: { allow: allow.subscribe } },
  });
  const config = [
    `operator: ${operatorJwt}`,
    "resolver: MEMORY",
    `resolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
  ];
  const creds = [
    ...["-----BEGIN NATS USER JWT-----", userJwt, "------END NATS USER JWT------", ""],
    ...["-----BEGIN USER NKEY SEED-----", decoder.decode(user.getSeed())],
    ...["------END USER NKEY SEED------", ""],
  ];
  return { config: config.join("\n"), creds: creds.join("\n") };
}

function jwt(issuer: KeyPair, subject: KeyPair, nats: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ typ: "JWT", alg: "ed25519-nkey" })}.${part({
    ...{ jti: "test", iat: Math.floor(Date.now() / 1000), name: "test" },
    ...{ iss: issuer.getPublicKey(), sub: subject.getPublicKey(), nats },
  })}`;
  return `${text}.${Buffer.from(issuer.sign(Buffer.from(text))).toString("base64url")}`;
}
