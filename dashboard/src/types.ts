// The JSON that the server answers with. Times are seconds since the epoch, sizes are bytes, ids are hex text.

export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };
export type Row = Record<string, Value>;

export interface Session {
  connected: boolean;
  engine: string;
  address: string | null;
  pid: number | null;
  started: number | null;
  version: string;
  python: string;
  namespace: string | null;
  ray_dashboard: string | null;
  problem: string | null;
}

export interface Waiting {
  id: string;
  name: string;
  kind: string;
  since: number | null;
}

export interface GpuHistory {
  index: number;
  name: string;
  utilization: (number | null)[];
  memory: (number | null)[];
  memory_limit: number;
}

export interface History {
  time: number[];
  cpu: (number | null)[];
  memory: (number | null)[];
  memory_limit: number;
  gpu: GpuHistory[];
  object_store: (number | null)[];
  running: (number | null)[];
}

export interface Overview {
  resources: { name: string; total: number; used: number }[];
  tasks: Record<string, number>;
  /** The actor calls among the tasks. */
  calls: Record<string, number>;
  actors: Record<string, number>;
  workers: number;
  waiting: Waiting[];
  object_store: { used: number; limit: number; spilled: number; objects: number } | null;
  history: History;
}

export interface Table {
  columns: string[];
  rows: Row[];
  total: number;
  dropped: number;
}

export interface Why {
  id: string;
  lines: string[];
}

export interface TimelineTrack {
  id: string;
  pid: number | null;
  title: string;
}

export interface TimelineEvent {
  id: string;
  track: string;
  name: string;
  start: number;
  end: number | null;
  state: string;
  kind: string;
}

export interface Timeline {
  now: number;
  tracks: TimelineTrack[];
  events: TimelineEvent[];
  dropped: number;
}

export interface LogFile {
  name: string;
  size: number;
  modified: number;
  pid: number | null;
  title: string | null;
}

export interface LogText {
  name: string;
  size: number;
  lines: string[];
  truncated: boolean;
}

export interface Memory {
  budget: number;
  used: number;
  spilled: number;
  mapped: number;
  processes: { pid: number; title: string; rss: number; uss: number | null; objects: number; bytes: number }[];
  objects: MemoryObject[];
}

export interface MemoryObject {
  id: string;
  size: number;
  state: string;
  owner_pid: number | null;
  holders: { pid: number; title: string; kind: string }[];
  created_at: string | null;
  pinned: boolean;
  spilled: boolean;
}

export type RunKind = "data" | "train" | "tune";
export type RunStatus = "RUNNING" | "FINISHED" | "FAILED" | "INTERRUPTED";

export interface Run {
  id: string;
  kind: RunKind;
  name: string;
  status: RunStatus;
  started: number;
  ended: number | null;
  pid: number;
  summary: Value;
  error?: string | null;
}

export interface Operator {
  id: string;
  name: string;
  inputs: string[];
  rows_in: number;
  rows_out: number;
  bytes_out: number;
  blocks_queued: number;
  tasks_active: number;
  rate: number;
  state: "running" | "finished" | "waiting";
  backpressure: string | null;
}

export interface DataRun extends Run {
  operators: Operator[];
  rows: number;
  total_rows: number | null;
}

export interface TrainRun extends Run {
  workers: { rank: number; pid: number; node: string | null; status: string }[];
  metrics: { time: number[]; iteration: number[]; values: Record<string, (number | null)[]> };
  checkpoints: { path: string; iteration: number | null; metrics: Record<string, Value> }[];
}

export interface Trial {
  id: string;
  status: string;
  config: Record<string, Value>;
  iteration: number;
  metrics: Record<string, Value>;
  error: string | null;
}

export interface TuneRun extends Run {
  metric: string | null;
  mode: "min" | "max" | null;
  parameters: string[];
  trials: Trial[];
  best: string | null;
}

export interface Percentiles {
  p50: number | null;
  p90: number | null;
  p99: number | null;
}

export interface Deployment {
  name: string;
  status: string;
  message: string;
  replicas: { id: string; state: string; pid: number | null }[];
  target: number;
  requests_per_s: number | null;
  errors_per_s: number | null;
  running: number | null;
  queued: number | null;
  latency: ({ buckets_ms: number[]; counts: number[] } & Percentiles) | null;
}

export interface Serve {
  applications: {
    name: string;
    route: string | null;
    status: string;
    message: string;
    deployments: Deployment[];
  }[];
  proxies: Row[];
  http: string | null;
}

export interface Model {
  id: string;
  application: string;
  base_url: string | null;
  tokens_per_s: number | null;
  prompt_tokens_per_s: number | null;
  running: number | null;
  waiting: number | null;
  prompt_tokens: number;
  cached_prompt_tokens: number;
  ttft: Percentiles | null;
  itl: Percentiles | null;
}
