// The notes of --explain for the default choice of kernels: the variant for each number of tokens and the reason, the
// other possible ones, and the reason for each refusal. kernels/matmul-variants.ts makes the choice itself; if there are
// measurements, choose.ts chooses and explains.

import { plural } from "../base/plural.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import {
  acceptsProblem,
  type ChooseMatmul,
  defaultChoice,
  defaultVariant,
  hasKnobs,
  type MatmulChoice,
  type MatmulProblem,
  type MatmulTarget,
  type MatmulVariant,
  matmulVariants,
} from "../kernels/matmul-variants.ts";

/** `explained`: numbers of tokens that the user asked about, which have no estimates here. */
export function explainedDefault(
  target: MatmulTarget = detectWasmFeatures(),
  explained: readonly number[] = [],
): ChooseMatmul {
  const choose = defaultChoice(target);
  return (problems, maxTokens, threads) => {
    const choice = choose(problems, maxTokens, threads);
    const asked = explained.map(
      (tokens) =>
        `${plural(tokens, "token")} ${defaultVariant(problems[0]!.dtype, tokens, target).id}`,
    );
    const chosen = `  chosen: ${asked.join(", ")} (no estimates: "lantern tune" measures)`;
    const notes = notesOf(choice, problems, target, threads);
    return { ...choice, notes: asked.length === 0 ? notes : [...notes, chosen] };
  };
}

const KNOBS_TEXT = "prefetch distance, unrolling, order and pipelining of loads";

function hasAnyKnobs(variants: readonly MatmulVariant[], target: MatmulTarget): boolean {
  return variants.some((variant) => hasKnobs(variant, target));
}

function notesOf(
  { variants, byTokens }: MatmulChoice,
  problems: readonly MatmulProblem[],
  target: MatmulTarget,
  threads: number,
): string[] {
  const shapes = problems.map(({ dtype, n, k }) => `${dtype} ${n} x ${k}`).join(" + ");
  const chosen = variants.flatMap(({ id }, index) => {
    const tokens = byTokens.flatMap((choice, count) => (choice === index ? count : []));
    const some = tokens.filter((count) => count > 0);
    return some.length === 0 ? [] : `  ${id}: the default for ${rangesText(some)} tokens`;
  });
  const possible: string[] = [];
  const refused = new Map<string, string[]>();
  for (const variant of matmulVariants(target)) {
    if (variants.some(({ id }) => id === variant.id)) continue;
    const refusal = problems
      .map((problem) => acceptsProblem(variant, problem, target))
      .find((answer) => answer !== true);
    if (refusal === undefined) possible.push(variant.id);
    else refused.set(refusal, [...(refused.get(refusal) ?? []), variant.id]);
  }
  return [
    `${shapes}, ${threads} thread${threads === 1 ? "" : "s"}:`,
    ...chosen,
    `  why: the fastest on other machines with this type and ${target.vectorRegisters} vector registers; not measured here`,
    ...(possible.length === 0 ? [] : [`  also possible: ${possible.join(", ")}`]),
    ...(hasAnyKnobs(variants, target) ? [`  "lantern tune" also searches ${KNOBS_TEXT}`] : []),
    ...[...refused].map(([reason, ids]) => `  refused, ${reason}: ${ids.join(", ")}`),
  ];
}

/** "1, 5 to 32" */
function rangesText(ascending: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < ascending.length; at++) {
    const from = ascending[at]!;
    while (ascending[at + 1] === ascending[at]! + 1) at++;
    const to = ascending[at]!;
    parts.push(from === to ? `${from}` : `${from} to ${to}`);
  }
  return parts.join(", ");
}
