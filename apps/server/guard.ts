// Checks before every route, on headers alone: the name in the Host header, the Origin of a page, keys and the token
// (access.ts). Also the security headers of every response.
//
// A page on the internet can make a browser send requests to 127.0.0.1. Two checks keep it out: its Origin is not this
// server's, and after DNS rebinding its Host header is not one of this server's names, at any address that the server
// listens on.

import { type Access, createAccess, type LoginSource, type Visitor } from "./access.ts";
import type { ServerSettings } from "./context.ts";
import { forbidden, invalidRequest } from "./errors.ts";
import { hostNameOf, isAddress } from "./host-names.ts";

/** The HTTP server's facts about a request. */
export interface Connection {
  /** The client's address. */
  address: string;
  /** It is one of this machine's own addresses. */
  isLocal: boolean;
  /** It came through a UNIX socket, which no page of a browser reaches: any Host header will do. */
  isFile?: boolean;
}

export interface Guard {
  /** Throws an ApiError. Returns the client's identity for the queue. */
  check(request: Request, connection: Connection, access: Access): Promise<string>;
  /** The Set-Cookie header for a page with the token, the admin key or such a cookie; undefined if it is wrong. */
  login(request: Request, connection: Connection, from: LoginSource): Promise<string | undefined>;
  corsHeaders(headers: Headers): Record<string, string>;
  /** The response to a CORS preflight: without CORS headers, the browser does not send the request. */
  preflight(request: Request, path: string, connection: Connection): Response;
}

/** "app://*" allows all that begin so; a star does not go past a slash. */
function originPattern(origin: string): (given: string) => boolean {
  if (!origin.includes("*")) return (given) => given === origin;
  const parts = origin.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(`^${parts.join("[^/]*")}$`);
  return (given) => pattern.test(given);
}

export function createGuard(
  settings: Pick<ServerSettings, "access" | "corsOrigins" | "corsRules" | "hosts">,
): Guard {
  const {
    corsOrigins,
    corsRules: { methods, headers: allowedHeaders, credentials },
    hosts,
  } = settings;
  const access = createAccess(settings.access);
  const patterns = corsOrigins.map(originPattern);
  const allowed = (origin: string): boolean =>
    corsOrigins.includes("*") ||
    patterns.some((matches) => matches(origin)) ||
    (corsOrigins.includes("localhost") && isLocal(origin));

  return {
    async check(request, connection, needed) {
      if (!connection.isFile) checkHosts(request, hosts);
      const { headers } = request;
      const origin = headers.get("origin");
      if (origin !== null && !sameHost(origin, headers.get("host")) && !allowed(origin)) {
        throw forbidden(
          `pages of ${JSON.stringify(origin.slice(0, 200))} may not use this server. Start it with --cors ORIGIN to allow them`,
        );
      }
      return await access.check(visitorOf(headers, connection), needed);
    },
    login: (request, connection, from) =>
      access.login(visitorOf(request.headers, connection), from),
    corsHeaders(headers) {
      const origin = headers.get("origin");
      if (origin === null || !allowed(origin)) return {};
      return {
        "access-control-allow-origin": origin,
        ...(credentials && { "access-control-allow-credentials": "true" }),
        "access-control-expose-headers": "retry-after, x-request-id",
        vary: "origin",
      };
    },
    preflight(request, path, connection) {
      if (!connection.isFile) checkHosts(request, hosts);
      const { headers } = request;
      const own = path.startsWith("/lantern/") ? "PUT, PATCH, " : "";
      const answer = this.corsHeaders(headers);
      if ("access-control-allow-origin" in answer) {
        answer["access-control-allow-methods"] = methods ?? `GET, POST, ${own}DELETE, OPTIONS`;
        // With credentials, a browser takes "*" for the literal name of a header.
        answer["access-control-allow-headers"] =
          allowedHeaders ?? headers.get("access-control-request-headers") ?? "*";
        // A page of the internet that asks a program of this machine or network asks for this, too.
        if (headers.get("access-control-request-private-network") === "true") {
          answer["access-control-allow-private-network"] = "true";
        }
        answer["access-control-max-age"] = "600";
      }
      return new Response(null, { status: 200, headers: answer });
    },
  };
}

/** Pages served by this machine, on any port. */
function isLocal(origin: string): boolean {
  return /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i.test(origin);
}

/**
 * --cors lets other pages send requests, but never with the rights of our own page: its cookie, or being on this
 * machine.
 */
function visitorOf(headers: Headers, { address, isLocal: isHere }: Connection): Visitor {
  const origin = headers.get("origin");
  const site = headers.get("sec-fetch-site") ?? "none";
  const isOwnPage =
    (origin === null || sameHost(origin, headers.get("host"))) &&
    (site === "none" || site === "same-origin");
  return { headers, address, isLocal: isHere, isOwnPage };
}

/** The Host header and, if the request has a full URL, the host in it: both must be ours. */
function checkHosts(request: Request, hosts: readonly string[]): void {
  for (const host of [request.headers.get("host") ?? "", new URL(request.url).host]) {
    const name = hostNameOf(host);
    if (name !== undefined && (isAddress(name) || hosts.includes(name))) continue;
    if (host === "") {
      throw invalidRequest(
        "the request has no Host header. Send the name or the address of this server in it",
      );
    }
    const shown = JSON.stringify((name ?? host).slice(0, 200));
    throw forbidden(
      `the Host header names ${shown}, which is not a name of this server. Use its IP address, or start it with --allow-host NAME for another name`,
    );
  }
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

/** For JSON, events and text: none of them is a page. */
export const apiHeaders: Readonly<Record<string, string>> = {
  ...always,
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cache-control": "no-store",
};

function filesHeaders(...policy: readonly string[]): Readonly<Record<string, string>> {
  return {
    ...always,
    "content-security-policy": [
      "default-src 'none'",
      ...policy,
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
  };
}

/** For the web app: its own files only, and no text becomes HTML or a script except by its own policy (apps/web/src/state/trusted.ts, apps/web/src/worker/main.tsx). */
const pagePolicy: readonly string[] = [
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "require-trusted-types-for 'script'",
];

export const pageHeaders: Readonly<Record<string, string>> = filesHeaders(
  ...pagePolicy,
  "trusted-types lantern",
);

/** For the page of a tab that computes: it starts a thread. */
export const workerPageHeaders: Readonly<Record<string, string>> = filesHeaders(
  ...pagePolicy,
  "trusted-types default",
  "worker-src 'self'",
);

/**
 * For the scripts of Web Workers, which have a policy of their own: a tab that computes for a cluster connects to NATS, and reads
 * its model from the user's URL. They show nothing and have no page's data.
 */
export const threadHeaders: Readonly<Record<string, string>> = filesHeaders(
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "connect-src 'self' http: https: ws: wss:",
);
