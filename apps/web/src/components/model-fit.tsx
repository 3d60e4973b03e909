// A model's fit on this machine, in a sentence: whether it fits, and how fast it would be.

import type { JSX } from "preact";
import type { ListedModel, ModelFit } from "../api-types.ts";
import { bytesText, digits, grouped } from "../state/format.ts";

export function FitLine({ fit }: { fit: ModelFit | undefined }): JSX.Element | null {
  if (!fit || fit.fits === "unknown") return null;
  const need = fit.needBytes === undefined ? "" : `: needs ${bytesText(fit.needBytes)} of memory`;
  return (
    <p class={`fit ${fit.fits}`}>
      <b>{fitWords[fit.fits]}</b>
      {need}
      {fit.fits === "no" ? "." : speedWords(fit)}
    </p>
  );
}

const fitWords: Readonly<Record<ModelFit["fits"], string>> = {
  now: "Fits",
  tight: "Fits if other programs free memory",
  no: "Does not fit in this machine’s memory",
  unknown: "",
};

function speedWords({ expected, limit }: ModelFit): string {
  if (expected === undefined || limit === undefined) return ".";
  return `, and writes about ${speedText(expected)} tokens/s (at most ${speedText(limit)}).`;
}

/** An estimate has no third digit. */
function speedText(tokensPerSecond: number): string {
  return grouped(tokensPerSecond, tokensPerSecond < 10 ? 1 : 0);
}

/** The source of a list's speeds. */
export function SpeedNote({ models }: { models: readonly ListedModel[] }): JSX.Element | null {
  const fits = models.map(({ fit }) => fit).filter((fit) => fit?.limit !== undefined);
  const [first] = fits;
  if (!first) {
    return (
      <p class="hint">
        Speeds are shown here once this machine has been measured, on the Machine page.
      </p>
    );
  }
  const ownRuns = Math.max(...fits.map((fit) => fit!.runs));
  const percent = (fit: ModelFit | undefined): string => `${digits(fit!.share! * 100)}%`;
  const own = fits.find((fit) => fit!.runs === ownRuns);
  return (
    <p class="hint">
      A token is about three quarters of a word. “At most” is what this machine’s memory bandwidth
      and arithmetic allow on its CPU;{" "}
      {ownRuns > 0
        ? `similar models reached ${percent(own)} of that here (${ownRuns} run${ownRuns === 1 ? "" : "s"}).`
        : `models reach about ${percent(first)} of that on other machines. After the first chats here, their own speed is used instead.`}
    </p>
  );
}
