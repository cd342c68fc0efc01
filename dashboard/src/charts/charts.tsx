// The kinds of charts: lines over time or iterations, histograms, parallel coordinates.

import { Suspense, useMemo } from "react";

import { Boundary, lazyPart } from "../components/Boundary";
import * as format from "../format";
import { seriesColor } from "../theme";
import type { CanvasProps, Colors } from "./Canvas";

const Canvas = lazyPart(() => import("./Canvas"));

function Frame({ height, label, ...rest }: CanvasProps & { height: number; label: string }) {
  return (
    <div className="chart" style={{ height }} role="img" aria-label={label}>
      <Boundary>
        <Suspense fallback={null}>
          <Canvas {...rest} />
        </Suspense>
      </Boundary>
    </div>
  );
}

export interface Series {
  name: string;
  values: (number | null)[];
}

interface LinesProps {
  label: string;
  x: number[];
  series: Series[];
  unit: (value: number) => string;
  /** Whether x is a time in seconds since the epoch, or a number such as an iteration. */
  time?: boolean;
  xName?: string;
  max?: number;
  min?: number;
  log?: boolean;
  /** Whether all values are whole numbers. */
  whole?: boolean;
  height?: number;
}

export function Lines({ label, x, series, unit, time, xName, max, min, log, whole, height = 150 }: LinesProps) {
  const option = useMemo(
    () => (colors: Colors) => {
      const single = series.length === 1;
      const short = (x.at(-1) ?? 0) - (x[0] ?? 0) < 300;
      return {
        grid: { left: 6, right: 14, top: 10, bottom: 4, containLabel: true },
        tooltip: tooltip(colors, unit, (value) => (time ? format.clock(value / 1000) : `${xName ?? "x"} ${value}`)),
        xAxis: {
          type: time ? "time" : "value",
          min: "dataMin",
          max: "dataMax",
          axisLine: { lineStyle: { color: colors.line } },
          axisTick: { show: false },
          splitLine: { show: false },
          axisLabel: {
            color: colors.muted,
            fontSize: 11,
            hideOverlap: true,
            ...(time ? { formatter: (value: number) => format.clock(value / 1000).slice(0, short ? 8 : 5) } : {}),
          },
          splitNumber: 4,
        },
        yAxis: {
          type: log ? "log" : "value",
          min: log ? undefined : (min ?? (max === undefined ? undefined : 0)),
          max,
          interval: max === undefined ? undefined : max / 2,
          scale: min === undefined && max === undefined,
          splitNumber: 3,
          minInterval: whole ? 1 : undefined,
          axisLine: { show: false },
          axisTick: { show: false },
          axisLabel: { color: colors.muted, fontSize: 11, formatter: unit },
          splitLine: { lineStyle: { color: colors.line } },
        },
        series: series.map(({ name, values }, index) => ({
          type: "line",
          name,
          data: points(x, values, time ?? false),
          showSymbol: values.length === 1,
          symbolSize: 5,
          connectNulls: false,
          lineStyle: { width: 1.5, color: single ? colors.accent : seriesColor(index) },
          itemStyle: { color: single ? colors.accent : seriesColor(index) },
          areaStyle: single && time ? { color: colors.accent, opacity: 0.1 } : undefined,
          sampling: "lttb",
          emphasis: { disabled: true },
        })),
      };
    },
    [x, series, unit, time, xName, max, min, log, whole],
  );
  return <Frame height={height} label={label} option={option} />;
}

/** Metrics that are reported now and then are drawn as one line; a gap in time stays a gap. */
function points(x: number[], values: (number | null)[], time: boolean): [number, number | null][] {
  const all = values.map((value, at): [number, number | null] => [(x[at] ?? 0) * (time ? 1000 : 1), value]);
  return time ? all : all.filter(([, value]) => value !== null);
}

function tooltip(colors: Colors, unit: (value: number) => string, head: (value: number) => string) {
  return {
    trigger: "axis",
    confine: true,
    transitionDuration: 0,
    backgroundColor: colors.surface,
    borderColor: colors.border,
    textStyle: { color: colors.text, fontSize: 12 },
    axisPointer: { lineStyle: { color: colors.muted, type: "solid", width: 1 } },
    // Elements, not HTML text: names of series come from users.
    formatter: (points: { axisValue: number; seriesName: string; color: string; value: [number, number | null] }[]) => {
      const box = document.createElement("div");
      const first = points[0];
      if (first) box.append(head(first.axisValue));
      for (const point of points) {
        if (point.value[1] == null) continue;
        const line = document.createElement("div");
        const dot = document.createElement("span");
        dot.style.cssText = `display:inline-block;width:8px;height:8px;border-radius:50%;margin-right:6px;background:${point.color}`;
        const value = document.createElement("b");
        value.textContent = unit(point.value[1]);
        line.append(dot, `${point.seriesName} `, value);
        box.append(line);
      }
      return box;
    },
  };
}

export function Legend({ series }: { series: Series[] }) {
  return (
    <span style={{ display: "inline-flex", flexWrap: "wrap", gap: "2px 12px" }}>
      {series.map(({ name }, index) => (
        <span key={name} style={{ display: "inline-flex", alignItems: "center", gap: 5 }}>
          <span aria-hidden="true" className="dot" style={{ background: seriesColor(index) }} />
          {name}
        </span>
      ))}
    </span>
  );
}

interface HistogramProps {
  label: string;
  /** The upper bounds of the buckets; counts may have one more, for all above. */
  bounds: number[];
  counts: number[];
  unit: (value: number) => string;
  height?: number;
}

export function Histogram({ label, bounds, counts, unit, height = 130 }: HistogramProps) {
  const option = useMemo(
    () => (colors: Colors) => {
      const shown = trimmed(counts);
      const names = shown.map((index) => {
        const bound = bounds[index];
        return bound === undefined ? `> ${unit(bounds.at(-1) ?? 0)}` : `≤ ${unit(bound)}`;
      });
      return {
        grid: { left: 6, right: 6, top: 8, bottom: 4, containLabel: true },
        tooltip: {
          trigger: "axis",
          confine: true,
          backgroundColor: colors.surface,
          borderColor: colors.border,
          textStyle: { color: colors.text, fontSize: 12 },
          axisPointer: { type: "shadow" },
        },
        xAxis: {
          type: "category",
          data: names,
          axisTick: { show: false },
          axisLine: { lineStyle: { color: colors.line } },
          axisLabel: { color: colors.muted, fontSize: 11, hideOverlap: true },
        },
        yAxis: {
          type: "value",
          splitNumber: 2,
          axisLabel: { color: colors.muted, fontSize: 11, formatter: format.count },
          splitLine: { lineStyle: { color: colors.line } },
        },
        series: [
          {
            type: "bar",
            name: "requests",
            data: shown.map((index) => counts[index] ?? 0),
            itemStyle: { color: colors.accent, borderRadius: [2, 2, 0, 0] },
            barCategoryGap: "12%",
            emphasis: { disabled: true },
          },
        ],
      };
    },
    [bounds, counts, unit],
  );
  return <Frame height={height} label={label} option={option} />;
}

/** The indices of the buckets without the empty ones at both ends. */
function trimmed(counts: number[]): number[] {
  const filled = counts.flatMap((each, index) => (each > 0 ? [index] : []));
  const [first, last] = [filled[0] ?? 0, filled.at(-1) ?? counts.length - 1];
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

export interface Dimension {
  name: string;
  /** The values of an axis of names; without them it is an axis of numbers. */
  names?: string[];
  log?: boolean;
}

export interface ParallelLine {
  id: string;
  values: (number | string | null)[];
  best: boolean;
  failed: boolean;
  /** From 0, the best, to 1, the worst; null if it has no result. */
  rank: number | null;
}

interface ParallelProps {
  label: string;
  dimensions: Dimension[];
  lines: ParallelLine[];
  height?: number;
  onOpen?: (id: string) => void;
}

export function Parallel({ label, dimensions, lines, height = 300, onOpen }: ParallelProps) {
  const option = useMemo(
    () => (colors: Colors) => {
      const order = [...lines].sort((one, other) => (other.rank ?? 2) - (one.rank ?? 2)); // the best on top
      return {
        parallel: {
          left: 40,
          right: 60,
          top: 34,
          bottom: 16,
          parallelAxisDefault: {
            nameTextStyle: { color: colors.text, fontSize: 12 },
            nameGap: 12,
            axisLine: { lineStyle: { color: colors.border } },
            axisTick: { show: false },
            axisLabel: { color: colors.text, fontSize: 11, backgroundColor: colors.surface, padding: [1, 3] },
          },
        },
        parallelAxis: dimensions.map((dimension, dim) => ({
          dim,
          name: dimension.name.length > 18 ? `${dimension.name.slice(0, 17)}…` : dimension.name,
          ...(dimension.names
            ? { type: "category", data: dimension.names }
            : {
                type: dimension.log ? "log" : "value",
                scale: true,
                min: "dataMin",
                max: "dataMax",
                axisLabel: {
                  color: colors.text,
                  fontSize: 11,
                  backgroundColor: colors.surface,
                  padding: [1, 3],
                  formatter: (value: number) => format.measure(value),
                  hideOverlap: true,
                },
              }),
        })),
        series: [
          {
            type: "parallel",
            smooth: false,
            data: order.map((line) => ({
              name: line.id,
              value: line.values.map((value) => value ?? "-"),
              lineStyle: lineStyle(line, colors),
            })),
            emphasis: { lineStyle: { width: 2.5, opacity: 1, color: colors.text } },
          },
        ],
      };
    },
    [dimensions, lines],
  );
  const click = useMemo(
    () =>
      onOpen &&
      ((data: unknown) => {
        if (data !== null && typeof data === "object" && "name" in data) onOpen(String(data.name));
      }),
    [onOpen],
  );
  return (
    <div className="parallel" tabIndex={0} role="group" aria-label={label}>
      <div style={{ minWidth: 96 * dimensions.length }}>
        <Frame height={height} label={label} option={option} onClick={click} />
      </div>
    </div>
  );
}

/** The better a trial, the stronger its line. */
function lineStyle({ best, failed, rank }: ParallelLine, colors: Colors) {
  if (best) return { color: colors.accent, width: 3, opacity: 1 };
  if (failed) return { color: colors.bad, width: 1.2, opacity: 0.7, type: "dashed" };
  if (rank === null) return { color: colors.muted, width: 1.2, opacity: 0.35 };
  return { color: colors.accent, width: 1.4, opacity: 0.8 - 0.62 * rank };
}
