// The table of architectures: one line for each. Nothing else in the project lists them.

import { ModelError } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";
import { show } from "../base/show.ts";
import { afmoe } from "./afmoe.ts";
import { apertus } from "./apertus.ts";
import { arcee } from "./arcee.ts";
import type { Arch } from "./arch.ts";
import { arctic } from "./arctic.ts";
import { baichuan } from "./baichuan.ts";
import { bailingmoe2 } from "./bailingmoe2.ts";
import { bailingmoe3 } from "./bailingmoe3.ts";
import { bert } from "./bert.ts";
import { bitnet } from "./bitnet.ts";
import { bloom } from "./bloom.ts";
import { chatglm } from "./chatglm.ts";
import { cogvlm } from "./cogvlm.ts";
import { cohere2 } from "./cohere2.ts";
import { cohere2moe } from "./cohere2moe.ts";
import { commandR } from "./command-r.ts";
import { dbrx } from "./dbrx.ts";
import { deci } from "./deci.ts";
import { deepseek } from "./deepseek.ts";
import { deepseek2 } from "./deepseek2.ts";
import { deepseek2Ocr } from "./deepseek2-ocr.ts";
import { deepseek32 } from "./deepseek32.ts";
import { dots1 } from "./dots1.ts";
import { dots3note } from "./dots3note.ts";
import { dream } from "./dream.ts";
import { ernie45Moe } from "./ernie4_5-moe.ts";
import { eurobert } from "./eurobert.ts";
import { exaone } from "./exaone.ts";
import { exaoneMoe } from "./exaone-moe.ts";
import { exaone4 } from "./exaone4.ts";
import { falcon } from "./falcon.ts";
import { falconH1 } from "./falcon-h1.ts";
import { gemma } from "./gemma.ts";
import { gemmaEmbedding } from "./gemma-embedding.ts";
import { gemma2 } from "./gemma2.ts";
import { gemma3 } from "./gemma3.ts";
import { gemma3n } from "./gemma3n.ts";
import { gemma4 } from "./gemma4.ts";
import { glm4 } from "./glm4.ts";
import { glm4moe } from "./glm4moe.ts";
import { gptOss } from "./gpt-oss.ts";
import { gpt2 } from "./gpt2.ts";
import { gptneox } from "./gptneox.ts";
import { granite } from "./granite.ts";
import { graniteSwa } from "./granite_swa.ts";
import { graniteHybrid } from "./granitehybrid.ts";
import { graniteswitch } from "./graniteswitch.ts";
import { grok } from "./grok.ts";
import { grovemoe } from "./grovemoe.ts";
import { hunyuanDense } from "./hunyuan-dense.ts";
import { hunyuanMoe } from "./hunyuan-moe.ts";
import { hyV3 } from "./hy_v3.ts";
import { jais } from "./jais.ts";
import { jamba } from "./jamba.ts";
import { jinaBertV2 } from "./jina-bert-v2.ts";
import { jinaBertV3 } from "./jina-bert-v3.ts";
import { kimiK3 } from "./kimi-k3.ts";
import { kimiLinear } from "./kimi-linear.ts";
import { laguna } from "./laguna.ts";
import { lfm2 } from "./lfm2.ts";
import { llada } from "./llada.ts";
import { lladaMoe } from "./llada-moe.ts";
import { llama } from "./llama.ts";
import { llamaEmbed } from "./llama-embed.ts";
import { llama4 } from "./llama4.ts";
import { maincoder } from "./maincoder.ts";
import { mamba } from "./mamba.ts";
import { mamba2 } from "./mamba2.ts";
import { mellum } from "./mellum.ts";
import { mimo2 } from "./mimo2.ts";
import { minicpm } from "./minicpm.ts";
import { minicpm3 } from "./minicpm3.ts";
import { minimax01 } from "./minimax-01.ts";
import { minimaxM2 } from "./minimax-m2.ts";
import { minimaxM3 } from "./minimax-m3.ts";
import { mistral3 } from "./mistral3.ts";
import { modernBert } from "./modern-bert.ts";
import { mpt } from "./mpt.ts";
import { museGlimmer } from "./muse-glimmer.ts";
import { nanbeige } from "./nanbeige.ts";
import { nemotron } from "./nemotron.ts";
import { nemotronH } from "./nemotron_h.ts";
import { neoBert } from "./neo-bert.ts";
import { nomicBert } from "./nomic-bert.ts";
import { nomicBertMoe } from "./nomic-bert-moe.ts";
import { olmo } from "./olmo.ts";
import { olmo2 } from "./olmo2.ts";
import { olmoe } from "./olmoe.ts";
import { openelm } from "./openelm.ts";
import { orion } from "./orion.ts";
import { phi2 } from "./phi2.ts";
import { phi3 } from "./phi3.ts";
import { phimoe } from "./phimoe.ts";
import { plamo } from "./plamo.ts";
import { plamo2 } from "./plamo2.ts";
import { plamo3 } from "./plamo3.ts";
import { plm } from "./plm.ts";
import { qwen } from "./qwen.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen2moe } from "./qwen2moe.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";
import { qwen35 } from "./qwen35.ts";
import { refact } from "./refact.ts";
import { rwkv6 } from "./rwkv6.ts";
import { rwkv7 } from "./rwkv7.ts";
import { seedOss } from "./seed_oss.ts";
import { smallthinker } from "./smallthinker.ts";
import { smollm3 } from "./smollm3.ts";
import { stablelm } from "./stablelm.ts";
import { starcoder2 } from "./starcoder2.ts";
import { step35 } from "./step35.ts";
import { t5encoder } from "./t5encoder.ts";
import { talkie } from "./talkie.ts";

const builtIn: readonly Arch[] = [
  afmoe,
  apertus,
  arcee,
  arctic,
  baichuan,
  bailingmoe2,
  bailingmoe3,
  bert,
  bitnet,
  bloom,
  chatglm,
  cogvlm,
  cohere2,
  cohere2moe,
  commandR,
  dbrx,
  deci,
  deepseek,
  deepseek2,
  deepseek2Ocr,
  deepseek32,
  dots1,
  dots3note,
  dream,
  ernie45Moe,
  eurobert,
  exaone,
  exaone4,
  exaoneMoe,
  falcon,
  falconH1,
  gemma,
  gemma2,
  gemma3,
  gemma3n,
  gemma4,
  gemmaEmbedding,
  glm4,
  glm4moe,
  gpt2,
  gptneox,
  gptOss,
  granite,
  graniteHybrid,
  graniteSwa,
  graniteswitch,
  grok,
  grovemoe,
  hunyuanDense,
  hunyuanMoe,
  hyV3,
  jais,
  jamba,
  jinaBertV2,
  jinaBertV3,
  kimiK3,
  kimiLinear,
  laguna,
  lfm2,
  llada,
  lladaMoe,
  llama,
  llama4,
  llamaEmbed,
  maincoder,
  mamba,
  mamba2,
  mellum,
  mimo2,
  minicpm,
  minicpm3,
  minimax01,
  minimaxM2,
  minimaxM3,
  mistral3,
  modernBert,
  mpt,
  museGlimmer,
  nanbeige,
  nemotron,
  nemotronH,
  neoBert,
  nomicBert,
  nomicBertMoe,
  olmo,
  olmo2,
  olmoe,
  openelm,
  orion,
  phi2,
  phi3,
  phimoe,
  plamo,
  plamo2,
  plamo3,
  plm,
  qwen,
  qwen2,
  qwen2moe,
  qwen3,
  qwen35,
  qwen3moe,
  refact,
  rwkv6,
  rwkv7,
  seedOss,
  smallthinker,
  smollm3,
  stablelm,
  starcoder2,
  step35,
  t5encoder,
  talkie,
];

const byName = new Map<string, Arch>();
for (const arch of builtIn) registerArch(arch);

/** Adds an architecture (used by the table itself and by extensions); a name that is taken is an error. */
export function registerArch(arch: Arch): void {
  for (const name of arch.names) {
    if (byName.has(name)) throw new ModelError(`architecture "${name}" is registered already`);
    byName.set(name, arch);
  }
}

export function archNamed(name: string | undefined): Arch {
  const arch = byName.get(name ?? "");
  if (arch) return arch;
  const known = [...byName.keys()];
  const similar = name === undefined ? [] : nearest(name, known);
  const hint = similar.length > 0 ? ` Similar names that it does: ${similar.join(", ")}.` : "";
  throw new ModelError(
    `model: general.architecture is ${name === undefined ? "missing" : show(name)}, which Lantern does not support.${hint} "lantern models --architectures" lists the ${known.length} that it does`,
  );
}

/** An architecture that Lantern supports. */
export interface ArchitectureInfo {
  /** The value of general.architecture. */
  name: string;
  /** The models that have it. */
  models: string;
  /** The reference that its results were compared with. */
  heldAgainst: string;
}

/** Every architecture that Lantern supports, by name. */
export function architectures(): ArchitectureInfo[] {
  const heldAgainst = "llama.cpp: logits of every position and greedy text of a tiny random model";
  return [...byName]
    .map(([name, { about }]) => ({ name, models: about, heldAgainst }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function allArchs(): readonly Arch[] {
  return [...new Set(byName.values())];
}
