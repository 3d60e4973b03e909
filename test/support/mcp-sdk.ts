// Whether the SDK of the Model Context Protocol is installed: it is an optional package.

import { loadSdk } from "../../apps/mcp/sdk.ts";

export const hasMcpSdk: boolean = await loadSdk("types.js").then(
  () => true,
  () => false,
);

export const noMcpSdk: string = hasMcpSdk
  ? ""
  : " [skipped: @modelcontextprotocol/sdk, an optional package, is not installed]";
