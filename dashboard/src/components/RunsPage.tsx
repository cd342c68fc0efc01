// A page with the runs of one library, and the details of the one that is chosen, or of the newest.

import type { ReactNode } from "react";
import { useLocation } from "wouter";

import { addressOf, useOpenId } from "../addresses";
import * as format from "../format";
import { useTopic } from "../live";
import type { Run, RunKind, Value } from "../types";
import { Empty, Page, Panel, Pending, Since, State } from "./basics";
import { DataTable, type Column } from "./DataTable";

interface Props<R extends Run> {
  name: string;
  kind: RunKind;
  empty: string;
  code: string;
  children: (run: R) => ReactNode;
}

function summary(value: Value): string {
  if (value === null || value === "") return "–";
  if (typeof value !== "object" || Array.isArray(value)) return format.plain(value);
  const pairs = Object.entries(value).filter(([, each]) => each !== null && typeof each !== "object");
  return pairs.map(([name, each]) => `${format.words(name)} ${format.measure(each)}`).join(", ") || "–";
}

/** Return how far a run is or, if it has failed, the last line of its error. */
export function summaryOf(run: Run): string {
  const lines = run.status === "FAILED" ? (run.error ?? "").split("\n").filter((line) => line.trim() !== "") : [];
  return lines.at(-1)?.trim() ?? summary(run.summary);
}

export function RunsPage<R extends Run>({ name, kind, empty, code, children }: Props<R>) {
  const [, navigate] = useLocation();
  const id = useOpenId();
  const topic = useTopic<{ runs: Run[] }>("/state/runs");
  const runs = topic.data?.runs.filter((run) => run.kind === kind).sort((one, other) => other.started - one.started);
  const chosen = id ?? runs?.[0]?.id ?? null;
  const columns: Column<Run>[] = [
    {
      key: "name",
      label: "Name",
      render: (run) => (
        <button type="button" className="link ellipsis" aria-pressed={run.id === chosen} title={run.name}>
          {run.id === chosen ? <strong>{run.name}</strong> : run.name}
        </button>
      ),
      sort: (run) => run.name,
    },
    {
      key: "status",
      label: "Status",
      width: 120,
      render: (run) => <State value={run.status} />,
      sort: (run) => run.status,
    },
    {
      key: "summary",
      label: "Summary",
      hide: "wide",
      render: (run) => <span title={summaryOf(run)}>{summaryOf(run)}</span>,
    },
    {
      key: "started",
      label: "Started",
      width: 160,
      hide: "wider",
      render: (run) => format.dateTime(run.started),
      sort: (run) => run.started,
    },
    {
      key: "duration",
      label: "Duration",
      width: 104,
      number: true,
      render: (run) => <Since time={run.started} until={run.ended} />,
      sort: (run) => (run.ended ?? Date.now() / 1000) - run.started,
    },
  ];
  return (
    <Page name={name}>
      <Panel name="Runs" about={runs && runs.length > 0 && format.count(runs.length)} bare>
        <Pending topic={topic} what={name} />
        {runs && runs.length > 0 && (
          <div style={{ maxHeight: 232, overflowY: "auto" }} tabIndex={-1}>
            <DataTable
              label={name}
              columns={columns}
              rows={runs}
              rowKey={(run) => run.id}
              onOpen={(run) => navigate(addressOf(kind, run.id))}
            />
          </div>
        )}
        {runs?.length === 0 && <Empty code={code}>{empty}</Empty>}
      </Panel>
      {chosen !== null && (
        <Chosen<R> key={chosen} id={chosen}>
          {children}
        </Chosen>
      )}
    </Page>
  );
}

function Chosen<R extends Run>({ id, children }: { id: string; children: (run: R) => ReactNode }) {
  const topic = useTopic<R>(`/state/runs/${encodeURIComponent(id)}`);
  if (!topic.data) {
    return (
      <Panel name="Run">
        <Pending topic={topic} what="The run" />
      </Panel>
    );
  }
  const { error } = topic.data;
  return (
    <>
      {error && (
        <Panel name="Error">
          <pre className="block error-text" tabIndex={0}>
            {error}
          </pre>
        </Panel>
      )}
      {children(topic.data)}
    </>
  );
}
