// Who may ask, and what every answer carries: the API key, the name in the Host header, the Origin of a page, and the
// security headers. Runs before any route and reads nothing but headers.
//
// A page on the internet can make a browser send requests to 127.0.0.1. Two checks keep it out: its Origin is not this
// server's, and after a change of DNS (rebinding) the Host it names is not one that this server answers to.

import type { ServerSettings } from "./context.ts";
import { forbidden, unauthorized } from "./errors.ts";

export interface Guard {
  /** Throws an ApiError; `open` routes need no key. */
  check(headers: Headers, open: boolean): Promise<void>;
  /** The key that a request brings, "" without one: for fairness between clients, never for logs. */
  keyOf(headers: Headers): string;
  corsHeaders(headers: Headers): Record<string, string>;
  /** The answer to a browser that asks whether it may ask: without headers of CORS, it may not. */
  preflight(headers: Headers, path: string): Response;
}

export function createGuard(settings: ServerSettings): Guard {
  const { apiKey, corsOrigins, hosts } = settings;
  const secret = apiKey === undefined ? undefined : digest(apiKey);
  const allowed = (origin: string): boolean =>
    corsOrigins.includes("*") ||
    corsOrigins.includes(origin) ||
    (corsOrigins.includes("localhost") && isLocal(origin));

  return {
    keyOf,
    async check(headers, open) {
      checkHost(headers.get("host"), hosts);
      const origin = headers.get("origin");
      if (origin !== null && !sameHost(origin, headers.get("host")) && !allowed(origin)) {
        throw forbidden(
          `pages of ${JSON.stringify(origin.slice(0, 200))} may not use this server. Start it with --cors ORIGIN to let them`,
        );
      }
      if (secret === undefined || open) return;
      const given = keyOf(headers);
      if (given === "") {
        throw unauthorized(
          "no API key was given: send it as Authorization: Bearer KEY, or as x-api-key",
        );
      }
      if (!sameBytes(await digest(given), await secret)) {
        throw unauthorized("the API key is wrong");
      }
    },
    corsHeaders(headers) {
      const origin = headers.get("origin");
      if (origin === null || !allowed(origin)) return {};
      return {
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "retry-after, x-request-id",
        vary: "origin",
      };
    },
    preflight(headers, path) {
      checkHost(headers.get("host"), hosts);
      const own = path.startsWith("/lantern/") ? "PUT, PATCH, " : "";
      const answer = this.corsHeaders(headers);
      if ("access-control-allow-origin" in answer) {
        answer["access-control-allow-methods"] = `GET, POST, ${own}DELETE, OPTIONS`;
        // A browser that sends credentials takes "*" for the name of a header.
        answer["access-control-allow-headers"] =
          headers.get("access-control-request-headers") ?? "*";
        answer["access-control-max-age"] = "600";
      }
      return new Response(null, { status: 200, headers: answer });
    },
  };
}

/** Pages that this machine serves, on any port. */
function isLocal(origin: string): boolean {
  return /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i.test(origin);
}

function keyOf(headers: Headers): string {
  const bearer = /^Bearer\s+(.+)$/i.exec(headers.get("authorization") ?? "")?.[1];
  return bearer ?? headers.get("x-api-key") ?? "";
}

/** Hashed, so that the comparison takes the same time wherever two keys differ, and however long they are. */
async function digest(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  let difference = a.length ^ b.length;
  for (let i = 0; i < a.length; i++) difference |= a[i]! ^ b[i]!;
  return difference === 0;
}

function checkHost(host: string | null, hosts: readonly string[] | undefined): void {
  if (hosts === undefined) return;
  const name = hostName(host ?? "");
  if (hosts.includes(name)) return;
  throw forbidden(
    `the Host header names ${JSON.stringify(name.slice(0, 200))}, which this server is not. Known: ${hosts.join(", ")}. Start it with --host or --allow-host for another name`,
  );
}

/** "Localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]" */
function hostName(host: string): string {
  return host.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "");
}

function sameHost(origin: string, host: string | null): boolean {
  const match = /^https?:\/\/(.+)$/i.exec(origin);
  return match !== null && host !== null && match[1]!.toLowerCase() === host.toLowerCase();
}

const always: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
};

/** For JSON, events and text: nothing in them is a page. */
export const apiHeaders: Readonly<Record<string, string>> = {
  ...always,
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cache-control": "no-store",
};

/** For the web app: its own files only; WebAssembly and threads for a model that runs in the page. */
export const pageHeaders: Readonly<Record<string, string>> = {
  ...always,
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "connect-src 'self'",
    "worker-src 'self' blob:",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};
