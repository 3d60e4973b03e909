// The route families, one line each. A family is a file in this folder; app.ts mounts all of them. Those that need
// more than the context (a database, the library of models) are opened and closed with the server (serve.ts).

import type { BatchPlace } from "../batch-service.ts";
import type { ServerContext } from "../context.ts";
import type { OpenDatabase } from "../held.ts";
import type { ModelLibrary } from "../models/library.ts";
import { anthropicRoutes } from "../protocols/anthropic/routes.ts";
import { lanternCacheRoutes } from "../protocols/lantern/cache.ts";
import { limitRoutes } from "../protocols/lantern/limits.ts";
import { lanternLoginRoutes } from "../protocols/lantern/login.ts";
import { machineRoutes } from "../protocols/lantern/machine.ts";
import { modelRoutes } from "../protocols/lantern/models.ts";
import { quantizeRoutes } from "../protocols/lantern/quantize.ts";
import { type BackupOptions, openSessions } from "../protocols/lantern/sessions.ts";
import { lanternStatusRoutes } from "../protocols/lantern/status.ts";
import { type ToolHost, toolRoutes } from "../protocols/lantern/tools.ts";
import { llamacppModelRoutes } from "../protocols/llamacpp/models.ts";
import { llamacppRoutes } from "../protocols/llamacpp/routes.ts";
import { ollamaRoutes } from "../protocols/ollama/routes.ts";
import { openaiChatRoutes } from "../protocols/openai/chat.ts";
import { openaiCompletionRoutes } from "../protocols/openai/completions.ts";
import { openaiEmbeddingRoutes } from "../protocols/openai/embeddings.ts";
import { openaiModelRoutes } from "../protocols/openai/models.ts";
import { openaiResponseRoutes } from "../protocols/openai/responses.ts";
import type { OpenedFamilies, RouteFamily } from "../route.ts";
import { openBatches } from "./batches.ts";
import { metricsRoutes } from "./metrics.ts";
import { rerankRoutes } from "./rerank.ts";
import { streamRoutes } from "./streams.ts";

export const routeFamilies: readonly RouteFamily[] = [
  openaiModelRoutes,
  openaiChatRoutes,
  openaiCompletionRoutes,
  openaiResponseRoutes,
  openaiEmbeddingRoutes,
  rerankRoutes,
  streamRoutes,
  anthropicRoutes,
  ollamaRoutes,
  llamacppRoutes,
  llamacppModelRoutes,
  metricsRoutes,
  lanternLoginRoutes,
  lanternStatusRoutes,
  lanternCacheRoutes,
];

/** The optional parts of a server besides its models. */
export interface FamilyParts {
  /** The database of conversations. */
  readonly sessions?: OpenDatabase | undefined;
  readonly sessionBackups?: BackupOptions | undefined;
  readonly library?: ModelLibrary | undefined;
  /** The storage of files and batches. */
  readonly batches?: BatchPlace | undefined;
  /** Tools of MCP servers. */
  readonly tools?: ToolHost | undefined;
}

type OpenFamilies = (
  context: ServerContext,
  parts: FamilyParts,
) => Promise<OpenedFamilies> | OpenedFamilies | undefined;

const ofLibrary =
  (routes: (context: ServerContext, library: ModelLibrary) => RouteFamily): OpenFamilies =>
  (context, { library }) =>
    library && { families: [routes(context, library)], close: async () => {} };

/** In this order; undefined: the server lacks the parts that they need. */
export const openedFamilies: readonly OpenFamilies[] = [
  (context, { sessions, sessionBackups }) =>
    sessions && openSessions(context, sessions, sessionBackups),
  (context, { batches }) => batches && openBatches(context, batches, () => routeFamilies),
  (context, { library }) => library && modelRoutes(context, library),
  (_, { tools }) => ({ families: [toolRoutes(tools)], close: async () => {} }),
  ofLibrary(machineRoutes),
  ofLibrary(limitRoutes),
  ofLibrary(quantizeRoutes),
];
