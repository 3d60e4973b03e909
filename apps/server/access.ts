// Access control. Routes have three classes: `open` to everybody, `use` for clients that may generate (with an API
// key, if the server has any), `admin` for clients that may change what is served and read the conversations. This
// file compares keys, the token and the page's cookie; guard.ts checks names and origins.
//
// Admin rights come from one of three settings: an admin key, which works from any address; or else the token printed
// at start, on this machine only; or else (--no-token) from being on this machine. Keys and the token are never
// written anywhere here: no message, log or response contains one. A page's cookie is made of a secret that may be kept across
// restarts, so that open pages and bookmarks are let in again; another secret or admin key makes other cookies.

import { adminLocalOnly, adminRefused, unauthorized } from "./errors.ts";
import { clientOf, portOf } from "./host-names.ts";

export type Access = "open" | "use" | "admin";

export interface AccessSettings {
  /** None: all clients may generate. */
  apiKeys: readonly string[];
  adminKey: string | undefined;
  /** undefined: there is none; without an admin key, all clients on this machine have admin rights. */
  token: string | undefined;
  /** Random text that outlives the server; undefined: its cookies are useless after a restart. */
  secret?: string | undefined;
}

/** The facts of a request that decide about access. */
export interface Visitor {
  headers: Headers;
  address: string;
  /** The request comes from this machine. */
  isLocal: boolean;
  /** It was sent by a page of this server, or by no page. */
  isOwnPage: boolean;
}

/**
 * The secret that a page shows to get a cookie: its Authorization header, a URL, which only the token is meant for, or the cookie, which
 * then lasts longer.
 */
export type LoginSource = "header" | "cookie" | { token: string };

export interface AccessControl {
  /** Throws an ApiError. Returns the client's identity for the queue: an accepted key, or else the address. */
  check(visitor: Visitor, access: Access): Promise<string>;
  /** The Set-Cookie header for a page with the token, the admin key or such a cookie; undefined if it is wrong. */
  login(visitor: Visitor, from: LoginSource): Promise<string | undefined>;
}

export function createAccess({ apiKeys, adminKey, token, secret }: AccessSettings): AccessControl {
  const api = Promise.all(apiKeys.map(digest));
  const adminSecret = adminKey ?? token;
  const admin = adminSecret === undefined ? undefined : digest(adminSecret);
  const cookies = pageCookies(secret, adminSecret);

  const hasCookie = async ({ headers, isOwnPage }: Visitor): Promise<boolean> => {
    if (!isOwnPage || admin === undefined) return false;
    const { name, value } = await cookies;
    const right = await digest(value);
    let isOurs = false;
    for (const given of cookiesOf(headers, name(headers))) {
      if (sameBytes(await digest(given), right)) isOurs = true;
    }
    return isOurs;
  };
  /** The index of an API key in the list; -1 if it is not there. */
  const apiKeyAt = async (given: string): Promise<number> => {
    const asked = await digest(given);
    let found = -1;
    for (const [at, key] of (await api).entries()) if (sameBytes(asked, key)) found = at;
    return given === "" ? -1 : found;
  };
  const isAdminSecret = async (given: string): Promise<boolean> =>
    admin !== undefined && given !== "" && sameBytes(await digest(given), await admin);
  const isPlaceForAdmin = (visitor: Visitor): boolean =>
    adminKey !== undefined || (visitor.isLocal && (token !== undefined || isDirect(visitor)));

  const checkUse = async (visitor: Visitor): Promise<string> => {
    const given = keyOf(visitor.headers);
    const at = apiKeys.length === 0 ? -1 : await apiKeyAt(given);
    if (at >= 0) return `key ${at}`;
    // Also without keys: the page does not share the quota of other programs on its machine.
    if (isPlaceForAdmin(visitor) && ((await hasCookie(visitor)) || (await isAdminSecret(given)))) {
      return "admin";
    }
    if (apiKeys.length === 0) return clientOf(visitor.address);
    throw unauthorized(
      given === ""
        ? "the request has no API key. Send it as Authorization: Bearer KEY, or as x-api-key"
        : "the API key is wrong",
    );
  };

  const checkAdmin = async (visitor: Visitor): Promise<string> => {
    if (!isPlaceForAdmin(visitor)) throw adminLocalOnly();
    // Without a separate secret, this machine's user must still bring the API key that all clients need.
    if (admin === undefined) return await checkUse(visitor);
    const given = keyOf(visitor.headers);
    if ((await hasCookie(visitor)) || (await isAdminSecret(given))) return "admin";
    const name = (await cookies).name(visitor.headers);
    const isMissing = given === "" && cookiesOf(visitor.headers, name).length === 0;
    throw adminRefused(adminKey === undefined ? "token" : "key", isMissing);
  };

  return {
    async check(visitor, access) {
      if (access === "admin") return await checkAdmin(visitor);
      return access === "use" ? await checkUse(visitor) : clientOf(visitor.address);
    },
    async login(visitor, from) {
      if (!isPlaceForAdmin(visitor)) return undefined;
      if (from === "cookie") {
        if (!(await hasCookie(visitor))) return undefined;
      } else {
        if (from !== "header" && token === undefined) return undefined;
        const given = from === "header" ? keyOf(visitor.headers) : from.token;
        if (!(await isAdminSecret(given))) return undefined;
      }
      const { name, value, attributes } = await cookies;
      return `${name(visitor.headers)}=${value}; ${attributes}`;
    },
  };
}

interface PageCookies {
  name(headers: Headers): string;
  /** It cannot be computed without the secret, nor the token or the admin key from it. */
  readonly value: string;
  readonly attributes: string;
}

/** A page that is opened once in this time stays let in. */
const cookieSeconds = 90 * 24 * 3600;

/**
 * Cookies ignore ports, so servers on one machine must have other names for theirs. With a kept secret, the name is made of it: servers of
 * one data folder share the cookie, also when they get another port. Without one, the port is in the name.
 */
async function pageCookies(
  secret: string | undefined,
  adminSecret: string = "",
): Promise<PageCookies> {
  const made = async (what: string): Promise<string> =>
    hex(await digest([what, secret ?? randomToken(), adminSecret].join("\n")));
  const tag = secret === undefined ? undefined : (await made("name")).slice(0, 12);
  return {
    name: (headers) => `lantern-${tag ?? (portOf(headers.get("host") ?? "") || "default")}`,
    value: (await made("cookie")).slice(0, 40),
    attributes: `Path=/; HttpOnly; SameSite=Strict${secret === undefined ? "" : `; Max-Age=${cookieSeconds}`}`,
  };
}

/** 160 bits, in characters that need no escaping in a URL. */
export function randomToken(): string {
  return hex(crypto.getRandomValues(new Uint8Array(20)));
}

const hex = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Through a proxy on this machine, strangers look like its own user. */
function isDirect({ headers, isOwnPage }: Visitor): boolean {
  const passedOn = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
  return isOwnPage && !passedOn.some((name) => headers.has(name));
}

function keyOf(headers: Headers): string {
  const bearer = /^Bearer\s+(\S.*)$/i.exec(headers.get("authorization") ?? "")?.[1];
  return bearer ?? headers.get("x-api-key") ?? "";
}

/** All cookies of that name: a program on another port of this host can add one, and must not be able to hide ours. */
function cookiesOf(headers: Headers, name: string): string[] {
  const wanted = `${name}=`;
  const parts = (headers.get("cookie") ?? "").split(";").map((part) => part.trim());
  return parts.filter((part) => part.startsWith(wanted)).map((part) => part.slice(wanted.length));
}

/** Hashed, so that the time of a comparison depends neither on the position of the first difference nor on the length. */
async function digest(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  let difference = a.length ^ b.length;
  for (let i = 0; i < a.length; i++) difference |= a[i]! ^ b[i]!;
  return difference === 0;
}
