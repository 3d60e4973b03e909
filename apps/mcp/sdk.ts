// The official SDK of the Model Context Protocol, "@modelcontextprotocol/sdk": an optional package, loaded when it is first needed. The
// interfaces are the parts of it that are used here, so that Lantern compiles and runs without the package.

import { messageOf, UsageError } from "../../src/base/errors.ts";
import { checkPackage } from "../../src/platform/node-trusted-path.ts";

/** Any message of JSON-RPC. */
export type RpcMessage = Readonly<Record<string, unknown>>;

export interface Transport {
  start(): Promise<void>;
  send(message: RpcMessage): Promise<void>;
  close(): Promise<void>;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: ((message: never) => void) | undefined;
}

export interface RequestOptions {
  signal?: AbortSignal;
  timeout?: number;
  onprogress?: (progress: unknown) => void;
  resetTimeoutOnProgress?: boolean;
}

export interface McpClient {
  connect(transport: Transport, options?: RequestOptions): Promise<void>;
  request(request: object, result: object, options?: RequestOptions): Promise<unknown>;
  close(): Promise<void>;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
}

export interface HandlerExtra {
  readonly signal: AbortSignal;
  readonly _meta?: { readonly progressToken?: string | number };
  sendNotification(notification: object): Promise<void>;
}

export interface McpServer {
  connect(transport: Transport): Promise<void>;
  setRequestHandler(
    schema: object,
    handler: (request: { params: Record<string, unknown> }, extra: HandlerExtra) => unknown,
  ): void;
  close(): Promise<void>;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
}

export interface HttpServerTransport extends Transport {
  handleRequest(request: Request): Promise<Response>;
  readonly sessionId?: string | undefined;
}

interface SdkFiles {
  "client/index.js": {
    Client: new (about: object, options: object) => McpClient;
  };
  "client/streamableHttp.js": {
    StreamableHTTPClientTransport: new (url: URL, options: object) => Transport;
  };
  "server/index.js": { Server: new (about: object, options: object) => McpServer };
  "server/webStandardStreamableHttp.js": {
    WebStandardStreamableHTTPServerTransport: new (options: object) => HttpServerTransport;
  };
  "types.js": {
    CallToolRequestSchema: object;
    CallToolResultSchema: object;
    EmptyResultSchema: object;
    ListToolsRequestSchema: object;
    ListToolsResultSchema: object;
    McpError: new (code: number, message: string) => Error;
  };
}

const files: { readonly [File in keyof SdkFiles]: () => Promise<SdkFiles[File]> } = {
  "client/index.js": () => import("@modelcontextprotocol/sdk/client/index.js"),
  "client/streamableHttp.js": () => import("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  "server/index.js": () => import("@modelcontextprotocol/sdk/server/index.js"),
  "server/webStandardStreamableHttp.js": () =>
    import("@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js"),
  "types.js": () => import("@modelcontextprotocol/sdk/types.js"),
};

/** The version that Lantern is tested with. */
const testedVersion = "1.32.2";

/** One file of the SDK. */
export async function loadSdk<File extends keyof SdkFiles>(file: File): Promise<SdkFiles[File]> {
  checkPackage("@modelcontextprotocol/sdk");
  try {
    return await files[file]();
  } catch (cause) {
    const { code } = cause as { code?: string };
    const why =
      code === "ERR_MODULE_NOT_FOUND"
        ? "which is not installed"
        : `which cannot be loaded here (${messageOf(cause)})`;
    throw new UsageError(
      `MCP needs the npm package "@modelcontextprotocol/sdk", ${why}: npm install @modelcontextprotocol/sdk@${testedVersion}`,
      { cause },
    );
  }
}
