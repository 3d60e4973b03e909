// Types of the server's responses: those of src/ if they are the same, and the few that exist only as JSON. Types only;
// nothing here is in the bundle.

import type {
  ProfileReport as EngineProfile,
  KvType,
  MachineMeasurement,
  ModelFit,
  ModelInfo,
  LimitsReport as Report,
  TuneAnalysis,
  TuneProfile,
} from "../../../src/index.ts";
import type { PageModels } from "../../server/context.ts";
import type {
  LibraryFinding,
  LibraryFolder,
  LibraryModel,
  LibraryPlace,
  LibraryVariant,
  LoadPlan,
} from "../../server/models/library.ts";
import type { ModelMemory, ModelTask } from "../../server/models/service.ts";
import type { CacheView as ServerCacheView } from "../../server/protocols/lantern/cache.ts";
import type { QuantizeReport } from "../../server/protocols/lantern/quantize.ts";
import type { UsageSample } from "../../server/usage.ts";
import type { Preset } from "../../sessions/presets.ts";
import type { LiveGauge, RunEvent as ServerRunEvent } from "../../sessions/run.ts";
import type { SearchHit } from "../../sessions/search.ts";
import type { Message, Session, ToolCall } from "../../sessions/session.ts";
import type { SessionSettings, SessionTool, SettingsChange } from "../../sessions/settings.ts";

export type {
  KvType,
  MachineMeasurement,
  Message,
  ModelInfo,
  Preset,
  QuantizeReport,
  SearchHit,
  SessionSettings,
  SessionTool,
  SettingsChange,
  ToolCall,
};
export type CacheView = ServerCacheView;
export type Gauge = LiveGauge;
export type LimitsReport = Report;
export type ProfileReport = EngineProfile;
export type RunEvent = ServerRunEvent & { id?: string };

export interface RunView {
  id: string;
  session: string;
  model: string;
  /** The answers that it writes. */
  messages: string[];
  state: "running" | "ended";
  warning: string | null;
}

export interface OpenSession extends Session {
  /** Never written to a disk. */
  private: boolean;
  /** The answer that is being written now. */
  run: RunView | null;
}

export interface SessionList {
  sessions: OpenSession[];
  next: string | null;
  /** Number of damaged entries that were set aside. */
  setAside: number;
  /** The reason why nothing can be saved; null: it can. */
  notice: string | null;
  /** The contents of a backup, if there is damage. */
  backup: BackupOffer | null;
}

/** A backup of the conversations. */
export interface BackupOffer {
  at: number;
  conversations: number;
  messages: number;
}

/** The conversations that were restored from it. */
export interface Restored {
  at: number;
  added: number;
  copied: number;
  failed: string[];
  movedTo: string | null;
}

export interface SessionTree {
  session: OpenSession;
  messages: Message[];
}

export interface Started {
  user: Message | null;
  answers: Message[];
  run: RunView;
}

export interface NewSession {
  title?: string;
  mode: Session["mode"];
  model?: string | null;
  settings?: SessionSettings;
  private?: boolean;
}

export interface SessionChange {
  title?: string;
  model?: string | null;
  settings?: SettingsChange;
  leaf?: string | null;
  branch?: string;
}

export interface Ask {
  parent?: string | null;
  content?: string;
  regenerate?: boolean;
  role?: Message["role"];
  generate?: boolean;
}

/** The result of a call, or its refusal. */
export interface CallEnd {
  message: string;
  call: string;
  state: Exclude<ToolCall["state"], "waiting">;
  result: string | null;
  by: string;
}

/** Servers of tools (MCP), and their tools. */
export interface ToolServers {
  enabled: boolean;
  servers: { name: string; status: "ready" | "failed"; problem?: string }[];
  tools: ServerTool[];
}

export interface ServerTool {
  name: string;
  server: string;
  description: string;
  parameters: Record<string, unknown>;
}

export interface ToolResult {
  text: string;
  is_error: boolean;
  /** Its full length, if it was cut. */
  full_length?: number;
}

export interface Continue {
  parent?: string | null;
  content?: string;
  n?: number;
  /** The answer to continue. */
  message?: string;
  settings?: SettingsChange;
}

export type {
  LibraryFinding,
  LibraryFolder,
  LibraryVariant,
  LoadPlan,
  ModelFit,
  ModelMemory,
  ModelTask,
};

export interface ListedModel extends LibraryModel {
  task: ModelTask | null;
  served: boolean;
}

export interface ServedModel {
  id: string;
  info: ModelInfo;
}

export interface ModelList {
  models: ListedModel[];
  served: ServedModel[];
  /** All models that requests can name: whether they are in memory, and how much of it they take. */
  memory: ModelMemory[];
  /** The models that the server was told to use for the pages. */
  pages: PageModels;
  /** The folder of downloads, which is hidden from other machines. */
  place: Omit<LibraryPlace, "folder"> & { folder: string | null };
  /** The server is on this machine, so paths can be opened. */
  isLocal: boolean;
}

export interface LoadOptions {
  chatTemplate?: "chatml" | "llama2" | "zephyr" | null;
  contextSize?: number | null;
  threads?: number | null;
  gpuLayers?: number | "all" | "auto" | null;
  gpuFor?: "prompt" | "generation" | "auto" | null;
  kvType?: KvType | { k: KvType; v: KvType } | null;
  weights?: "f16" | null;
}

export interface TuneView {
  date: string;
  features: string;
  profiles: TuneProfile[];
  groups: (Pick<TuneAnalysis["groups"][number], "points" | "crossovers"> & {
    dtype: string;
    n: number;
    k: number;
    threads: number;
  })[];
  gain: TuneAnalysis["gain"];
}

export interface MachineModel extends ServedModel {
  memory: {
    weights: { part: string; bytes: number }[];
    kvBytes: number;
    activationBytes: number | null;
  };
}

export interface QuantizeJob {
  model: string;
  type: string;
  phase: string;
  share: number;
  error: string | null;
  report: QuantizeReport | null;
}

export interface QuantizeView {
  types: string[];
  job: QuantizeJob | null;
}

export type { UsageSample };

/** The use of memory and processors in the last minutes, oldest first. */
export interface UsageView {
  samples: UsageSample[];
}

export interface MachineView {
  machine: MachineMeasurement | null;
  measuring: { share: number; error: string | null } | null;
  models: MachineModel[];
  tune: TuneView | null;
  /** The reason why there is none. */
  tuneNote: string | null;
}

/** A batch in OpenAI's form: the fields that the page reads. Times are in seconds since 1970. */
export interface BatchView {
  id: string;
  status: string;
  endpoint: string;
  model: string | null;
  errors: { data: { message: string }[] } | null;
  input_file_id: string;
  output_file_id: string | null;
  error_file_id: string | null;
  created_at: number;
  in_progress_at: number | null;
  completed_at: number | null;
  cancelled_at: number | null;
  expired_at: number | null;
  request_counts: { total: number; completed: number; failed: number };
  usage: {
    input_tokens: number;
    input_tokens_details: { cached_tokens: number };
    output_tokens: number;
  };
}

export interface BatchList {
  data: BatchView[];
  has_more: boolean;
  /** Names of input files by their ids. */
  names: ReadonlyMap<string, string>;
}
