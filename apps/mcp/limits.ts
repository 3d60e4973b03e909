// Limits of servers in time and size. All of them are in docs/library/tools.md.

import type { LineLimits } from "../../src/platform/node-lines.ts";

/** From the start of a server to the list of its tools. */
export const connectMs = 30_000;
/** A call, unless the caller sets another limit. */
export const callMs = 60_000;
/** A server that took too long for a call, and does not answer a ping within this time, hangs: it is ended. */
export const pingMs = 10_000;
/** Between two starts of a server that ends before it has answered a call: doubled each time. */
export const shortestPauseMs = 1000;
export const longestPauseMs = 60_000;

export const lineLimits: LineLimits = {
  lineBytes: 8 * 2 ** 20,
  floodBytes: 64 * 2 ** 20,
  floodLines: 10_000,
};
/** An answer over HTTP. */
export const responseBytes: number = lineLimits.floodBytes;

/** Lines that are no JSON: from programs that print messages for stderr on stdout. */
export const strayLines = 100;

export const mostServers = 32;
/** Tools of all servers together: as many as a request may have. */
export const mostTools = 128;
/** Pages of a server's list of tools. */
export const mostPages = 32;
/** Characters of a tool's description, and of its schema as JSON. */
export const descriptionLength = 8192;
export const schemaLength = 65_536;
