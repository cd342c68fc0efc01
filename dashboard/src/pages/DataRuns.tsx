import { useLayoutEffect, useMemo, useRef, useState } from "react";

import { Bar, Panel, Since, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { RunsPage } from "../components/RunsPage";
import * as format from "../format";
import type { DataRun, Operator } from "../types";

export default function DataRuns() {
  return (
    <RunsPage<DataRun>
      name="Data runs"
      kind="data"
      empty="No dataset has been executed yet. A dataset runs when its rows are asked for:"
      code={"dataset = skate.data.range(1_000_000).map_batches(lambda batch: batch)\ndataset.materialize()"}
    >
      {(run) => <Detail run={run} />}
    </RunsPage>
  );
}

function Detail({ run }: { run: DataRun }) {
  const running = run.operators.filter((operator) => operator.state === "running");
  const used = new Set(run.operators.flatMap((operator) => operator.inputs));
  const sink = run.operators.find((operator) => !used.has(operator.id));
  const progress = run.total_rows ? run.rows / run.total_rows : null;
  return (
    <>
      <Stats
        values={[
          ["Status", <State key="status" value={run.status} />],
          ["Rows out", format.count(run.rows), run.total_rows ? `of ${format.count(run.total_rows)}` : undefined],
          ["Rate", format.rate(sink?.rate, "rows")],
          ["Operators running", format.count(running.length), `of ${run.operators.length}`],
          ["Tasks running", format.count(run.operators.reduce((sum, operator) => sum + operator.tasks_active, 0))],
          ["Duration", <Since key="duration" time={run.started} until={run.ended} />],
        ]}
      />
      {progress !== null && <Bar share={progress} label="Rows produced" />}
      <Panel name="Plan" about={run.name}>
        <Plan operators={run.operators} />
      </Panel>
      <Panel name="Operators" bare>
        <DataTable label="Operators" columns={COLUMNS} rows={run.operators} rowKey={(operator) => operator.id} />
      </Panel>
    </>
  );
}

const COLUMNS: Column<Operator>[] = [
  { key: "name", label: "Operator", render: (row) => <span title={row.name}>{row.name}</span> },
  { key: "state", label: "State", width: 98, render: (row) => <State value={row.state} /> },
  {
    key: "rows_in",
    label: "Rows in",
    width: 90,
    number: true,
    hide: "wider",
    render: (row) => (/^(Read|Input)/.test(row.name) && row.rows_in === 0 ? "–" : format.count(row.rows_in)),
  },
  { key: "rows_out", label: "Rows out", width: 80, number: true, render: (row) => format.count(row.rows_out) },
  {
    key: "bytes_out",
    label: "Bytes out",
    width: 96,
    number: true,
    hide: "wide",
    render: (row) => format.bytes(row.bytes_out),
  },
  { key: "rate", label: "Rows/s", width: 74, number: true, render: (row) => format.rate(row.rate).replace("/s", "") },
  {
    key: "tasks",
    label: "Running",
    width: 76,
    number: true,
    hide: "wide",
    render: (row) => format.count(row.tasks_active),
  },
  {
    key: "queue",
    label: "Queued",
    width: 76,
    number: true,
    hide: "wide",
    render: (row) => format.count(row.blocks_queued),
  },
  {
    key: "backpressure",
    label: "Backpressure",
    hide: "wide",
    render: (row) => <span title={row.backpressure ?? undefined}>{row.backpressure ?? "–"}</span>,
  },
];

const NARROWEST = 164;
const WIDEST = 280;
const HEIGHT = 116;
const SPACE = 32;

interface Placed {
  operator: Operator;
  x: number;
  y: number;
}

interface Drawing {
  placed: Placed[];
  box: number; // width of a box
  height: number;
  vertical: boolean;
}

/** Return the layer of each operator: its longest way from a source; sources stand right before their consumers. */
function layersOf(operators: Operator[]): Operator[][] {
  const byId = new Map(operators.map((operator) => [operator.id, operator]));
  const depths = new Map<string, number>();
  const depthOf = (id: string, path: string[] = []): number => {
    const known = depths.get(id);
    if (known !== undefined) return known;
    const inputs = (byId.get(id)?.inputs ?? []).filter((input) => byId.has(input) && !path.includes(input));
    const depth = inputs.length === 0 ? 0 : 1 + Math.max(...inputs.map((input) => depthOf(input, [...path, id])));
    depths.set(id, depth);
    return depth;
  };
  for (const operator of operators) depthOf(operator.id);
  for (const operator of operators.filter(({ inputs }) => inputs.length === 0)) {
    const consumers = operators.filter(({ inputs }) => inputs.includes(operator.id));
    if (consumers.length > 0) depths.set(operator.id, Math.min(...consumers.map(({ id }) => depthOf(id))) - 1);
  }
  const layers: Operator[][] = [];
  for (const operator of operators) (layers[depthOf(operator.id)] ??= []).push(operator);
  return layers;
}

/** Place the layers side by side or, where that is too narrow, one below the other. */
function place(operators: Operator[], width: number): Drawing {
  const layers = layersOf(operators);
  const most = Math.max(1, ...layers.map((layer) => layer.length));
  const sideBySide = (width - (layers.length - 1) * SPACE) / Math.max(1, layers.length);
  const vertical = sideBySide < NARROWEST;
  const room = vertical ? (width - (most - 1) * 16) / most : sideBySide;
  const box = Math.max(140, Math.min(WIDEST, room - 1));
  const across = vertical ? box + 16 : HEIGHT + 16;
  const along = vertical ? HEIGHT + SPACE : box + SPACE;
  const margin = vertical ? Math.max(0, (width - most * across + 16) / 2) : 0;
  const placed = layers.flatMap((layer, depth) =>
    layer.map((operator, index) => {
      const offset = (index + (most - layer.length) / 2) * across;
      return vertical ? { operator, x: margin + offset, y: depth * along } : { operator, x: depth * along, y: offset };
    }),
  );
  return { placed, box, vertical, height: Math.max(HEIGHT, ...placed.map(({ y }) => y + HEIGHT)) + 2 };
}

function Plan({ operators }: { operators: Operator[] }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => element.clientWidth > 0 && setWidth(element.clientWidth); // 0 while it is not laid out
    const sizes = new ResizeObserver(measure);
    sizes.observe(element);
    measure();
    return () => sizes.disconnect();
  }, []);
  const { placed, box: boxWidth, height, vertical } = useMemo(() => place(operators, width), [operators, width]);
  const positions = new Map(placed.map((each) => [each.operator.id, each]));
  return (
    <div
      ref={box}
      className="plan"
      style={{ height, overflowX: "auto" }}
      tabIndex={0}
      role="group"
      aria-label="Plan of the dataset"
    >
      <svg width="100%" height={height} aria-hidden="true">
        {placed.flatMap(({ operator, x, y }) =>
          operator.inputs.map((input) => {
            const from = positions.get(input);
            if (!from) return null;
            return (
              <Edge
                key={`${input} ${operator.id}`}
                d={edge(from, { operator, x, y }, boxWidth, vertical)}
                active={from.operator.state === "running"}
              />
            );
          }),
        )}
      </svg>
      {placed.map(({ operator, x, y }) => (
        <Box key={operator.id} operator={operator} x={x} y={y} width={boxWidth} />
      ))}
    </div>
  );
}

function edge(from: Placed, to: Placed, width: number, vertical: boolean): string {
  const [x1, y1] = vertical ? [from.x + width / 2, from.y + HEIGHT] : [from.x + width, from.y + HEIGHT / 2];
  const [x2, y2] = vertical ? [to.x + width / 2, to.y] : [to.x, to.y + HEIGHT / 2];
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const bend = vertical ? `C${x1},${y} ${x2},${y}` : `C${x},${y1} ${x},${y2}`;
  const tip = vertical
    ? `M${x2 - 4},${y2 - 6}L${x2},${y2}L${x2 + 4},${y2 - 6}`
    : `M${x2 - 6},${y2 - 4}L${x2},${y2}L${x2 - 6},${y2 + 4}`;
  return `M${x1},${y1}${bend} ${x2},${y2}${tip}`;
}

function Edge({ d, active }: { d: string; active: boolean }) {
  return <path d={d} fill="none" stroke={active ? "var(--accent)" : "var(--idle)"} strokeWidth={active ? 2 : 1.3} />;
}

function Box({ operator, x, y, width }: { operator: Operator; x: number; y: number; width: number }) {
  const { state, backpressure } = operator;
  return (
    <div className="operator" data-state={state} style={{ left: x, top: y, width, height: HEIGHT }}>
      <strong title={operator.name}>{operator.name}</strong>
      <div className="row">
        <State value={state} />
        {state !== "finished" && <b>{format.rate(operator.rate)}</b>}
      </div>
      <div className="row">
        <span>{format.count(operator.rows_out)} rows</span>
        <span>{format.bytes(operator.bytes_out)}</span>
      </div>
      {backpressure ? (
        <div className="note" title={backpressure}>
          {backpressure}
        </div>
      ) : (
        state !== "finished" && (
          <div className="row">
            <span>{format.count(operator.tasks_active)} running</span>
            <span>{format.count(operator.blocks_queued)} queued</span>
          </div>
        )
      )}
    </div>
  );
}
