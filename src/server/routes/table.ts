// The route families, one line each. A family is a file in this folder; app.ts mounts all of them. Those that need
// more than the context (a database, the library of models) are opened and closed with the server (serve.ts).

import type { BatchPlace } from "../batch-service.ts";
import type { ServerContext } from "../context.ts";
import type { OpenDatabase } from "../held.ts";
import type { ModelLibrary } from "../library.ts";
import type { OpenedFamilies, RouteFamily } from "../route.ts";
import { anthropicRoutes } from "./anthropic.ts";
import { openBatches } from "./batches.ts";
import { lanternCacheRoutes } from "./lantern-cache.ts";
import { limitRoutes } from "./lantern-limits.ts";
import { lanternLoginRoutes } from "./lantern-login.ts";
import { machineRoutes } from "./lantern-machine.ts";
import { modelRoutes } from "./lantern-models.ts";
import { quantizeRoutes } from "./lantern-quantize.ts";
import { type BackupOptions, openSessions } from "./lantern-sessions.ts";
import { lanternStatusRoutes } from "./lantern-status.ts";
import { type ToolHost, toolRoutes } from "./lantern-tools.ts";
import { llamacppRoutes } from "./llamacpp.ts";
import { llamacppModelRoutes } from "./llamacpp-models.ts";
import { metricsRoutes } from "./metrics.ts";
import { ollamaRoutes } from "./ollama.ts";
import { openaiChatRoutes } from "./openai-chat.ts";
import { openaiCompletionRoutes } from "./openai-completions.ts";
import { openaiEmbeddingRoutes } from "./openai-embeddings.ts";
import { openaiModelRoutes } from "./openai-models.ts";
import { openaiResponseRoutes } from "./openai-responses.ts";
import { rerankRoutes } from "./rerank.ts";

export const routeFamilies: readonly RouteFamily[] = [
  openaiModelRoutes,
  openaiChatRoutes,
  openaiCompletionRoutes,
  openaiResponseRoutes,
  openaiEmbeddingRoutes,
  rerankRoutes,
  anthropicRoutes,
  ollamaRoutes,
  llamacppRoutes,
  llamacppModelRoutes,
  metricsRoutes,
  lanternLoginRoutes,
  lanternStatusRoutes,
  lanternCacheRoutes,
];

/** What a server may have besides its models. */
export interface FamilyParts {
  /** The database of conversations. */
  readonly sessions?: OpenDatabase | undefined;
  readonly sessionBackups?: BackupOptions | undefined;
  readonly library?: ModelLibrary | undefined;
  /** Where files and batches are kept. */
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

/** In this order; undefined: the server lacks what they need. */
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
