// The commands, one line each, in the order in which the help shows them.

import type { CliCommand } from "../command.ts";
import { batchCommand } from "./batch.ts";
import { benchCommand } from "./bench.ts";
import { chatCommand } from "./chat.ts";
import { convertCommand } from "./convert.ts";
import { devicesCommand } from "./devices.ts";
import { embedCommand } from "./embed.ts";
import { imatrixCommand } from "./imatrix.ts";
import { inspectCommand } from "./inspect.ts";
import { limitsCommand } from "./limits.ts";
import { logitsCommand } from "./logits.ts";
import { machineCommand } from "./machine.ts";
import { mcpCommand } from "./mcp.ts";
import { modelsCommand } from "./models.ts";
import { perplexityCommand } from "./perplexity.ts";
import { psCommand } from "./ps.ts";
import { pullCommand } from "./pull.ts";
import { quantizeCommand } from "./quantize.ts";
import { rerankCommand } from "./rerank.ts";
import { rmCommand } from "./rm.ts";
import { runCommand } from "./run.ts";
import { searchCommand } from "./search.ts";
import { serveCommand } from "./serve.ts";
import { sparsifyCommand } from "./sparsify.ts";
import { tokenizeCommand } from "./tokenize.ts";
import { tuneCommand } from "./tune.ts";
import { verifyCommand } from "./verify.ts";
import { workerCommand } from "./worker.ts";

export const commands: readonly CliCommand[] = [
  runCommand,
  chatCommand,
  embedCommand,
  rerankCommand,
  serveCommand,
  workerCommand,
  batchCommand,
  mcpCommand,
  modelsCommand,
  pullCommand,
  searchCommand,
  rmCommand,
  psCommand,
  inspectCommand,
  convertCommand,
  quantizeCommand,
  imatrixCommand,
  sparsifyCommand,
  tokenizeCommand,
  logitsCommand,
  perplexityCommand,
  benchCommand,
  limitsCommand,
  machineCommand,
  devicesCommand,
  verifyCommand,
  tuneCommand,
];
