// The files of the optional package "@modelcontextprotocol/sdk" that sdk.ts loads, so that Lantern compiles without it. sdk.ts has the
// types of the parts in use.

declare module "@modelcontextprotocol/sdk/client/index.js";
declare module "@modelcontextprotocol/sdk/client/streamableHttp.js";
declare module "@modelcontextprotocol/sdk/server/index.js";
declare module "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
declare module "@modelcontextprotocol/sdk/types.js";
