// Many users on the Limits page: how many a device serves within an agreement, the cost of a batch of requests, and the
// results of `lantern bench serve`.

import type { JSX } from "preact";
import { bytesText, digits, grouped, msText, resourceText } from "../state/format.ts";
import type { LimitsChoice, LimitsView } from "../state/limits-choice.ts";
import { NumberTable } from "./number-table.tsx";
import { Stops, withStop } from "./stops.tsx";

const userStops = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const firstStops = [200, 500, 1000, 2000, 3000, 5000, 10_000];
const rateStops = [1, 2, 5, 10, 20, 30, 50, 100];
const lengthStops = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const priceStops = [0.1, 0.2, 0.5, 1, 2, 2.5, 5, 10, 20];

interface Props {
  view: LimitsView;
  onChange(part: LimitsChoice): void;
}

export function LimitsServing({ view, onChange }: Props): JSX.Element {
  const { sla, promptTokens, answerTokens } = view.report.serving;
  return (
    <section class="card" aria-label="Many users">
      <h2>Many users at once</h2>
      <p class="hint">
        All users ask at the same moment. Their answers are generated together, so that the weights
        are read once for all of them.
      </p>
      <div class="choices">
        <Stops
          label="Users"
          hint={verdict(view)}
          stops={withStop(userStops, view.users)}
          value={view.users}
          onPick={(users) => onChange({ users })}
        />
        <Stops
          label="First token within"
          hint="For the last of the users"
          stops={withStop(firstStops, sla.firstTokenMs)}
          value={sla.firstTokenMs}
          format={msText}
          onPick={(firstTokenMs) => onChange({ firstTokenMs })}
        />
        <Stops
          label="Tokens/s for each user"
          hint="20 are faster than most people read"
          stops={withStop(rateStops, sla.tokensPerSecond)}
          value={sla.tokensPerSecond}
          onPick={(rate) => onChange({ rate })}
        />
        <Stops
          label="Tokens of a prompt"
          hint="Each user has another prompt"
          stops={withStop(lengthStops, promptTokens)}
          value={promptTokens}
          onPick={(prompt) => onChange({ prompt })}
        />
        <Stops
          label="Tokens of an answer"
          hint="As long for every user"
          stops={withStop(lengthStops, answerTokens)}
          value={answerTokens}
          onPick={(answer) => onChange({ answer })}
        />
        <Stops
          label="Price of an hour"
          hint="In any currency"
          stops={withStop(priceStops, view.price)}
          value={view.price}
          onPick={(price) => onChange({ price })}
        />
      </div>
      <Verdict view={view} />
      <UsersTable view={view} />
      <Batch view={view} />
      <Measured view={view} />
    </section>
  );
}

function verdict({ report: { serving }, users }: LimitsView): string {
  const row = serving.rows.find((one) => one.users === users)!;
  return row.failures.length === 0
    ? "can be served"
    : `not served: ${row.failures.map((failure) => failureTexts[failure]).join(", ")}`;
}

type Failure = LimitsView["report"]["serving"]["most"]["failures"][number];

const failureTexts: Readonly<Record<Failure, string>> = {
  "first token": "the last first token would come too late",
  "tokens/s": "each would get too few tokens/s",
  memory: "the memory would be too small",
};

function Verdict({ view }: { view: LimitsView }): JSX.Element {
  const { most } = view.report.serving;
  const why = most.failures.map((failure) => failureTexts[failure]).join(", ");
  return (
    <p>
      <b>
        At most {grouped(most.users)} user{most.users === 1 ? "" : "s"}.
      </b>{" "}
      With one more, {why}.
    </p>
  );
}

function UsersTable({ view }: { view: LimitsView }): JSX.Element {
  const { rows } = view.report.serving;
  return (
    <NumberTable
      label="What users get at most"
      head={["users", "first token", "tokens/s each", "all", "memory", "limited by", "SLA"]}
      rows={rows.map((row) => [
        grouped(row.users),
        msText(row.firstTokenMs),
        digits(row.tokensPerSecondEach),
        digits(row.tokensPerSecond),
        bytesText(row.memoryBytes),
        resourceText(row.resource),
        row.failures.length === 0 ? "served" : `not: ${row.failures.join(", ")}`,
      ])}
    />
  );
}

function Batch({ view }: { view: LimitsView }): JSX.Element {
  const batch = view.report.serving.batch!;
  if (batch.atOnce === 0) return <p>Not even one request fits in the memory.</p>;
  return (
    <p>
      <b>Offline batch:</b> {grouped(batch.requests)} requests that nobody waits for take at least{" "}
      {msText(1000 * batch.seconds)}, {grouped(batch.atOnce)} at a time: at most{" "}
      {grouped(batch.tokensPerHour)} tokens an hour, at a cost of {digits(batch.cost!)} for the
      batch and {digits(batch.costPerMillionTokens!)} for a million generated tokens.
    </p>
  );
}

function Measured({ view }: { view: LimitsView }): JSX.Element {
  const { measured } = view.report.serving;
  if (measured.length === 0) {
    return (
      <p class="hint">
        <code>lantern bench serve -m MODEL</code> measures how many users a model serves on its
        machine; the results then appear here.
      </p>
    );
  }
  return (
    <NumberTable
      label="Measured here"
      head={[
        "measured: users",
        "prompt",
        "answer",
        "first p99",
        "slowest",
        "all",
        "of limit",
        "SLA",
      ]}
      rows={measured.map((load) => [
        grouped(load.users),
        grouped(load.promptTokens),
        grouped(load.answerTokens),
        msText(load.firstP99Ms),
        digits(load.slowest),
        digits(load.tokensPerSecond),
        `${digits(100 * load.fraction)}%`,
        load.meetsSla ? "served" : "not",
      ])}
    />
  );
}
