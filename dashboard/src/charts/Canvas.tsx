// A chart of ECharts, which is loaded with the first chart.

import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";

import { init, type EChartsCoreOption, type EChartsType } from "./echarts";

export interface Colors {
  text: string;
  muted: string;
  line: string;
  surface: string;
  accent: string;
  bad: string;
  border: string;
}

export interface CanvasProps {
  /** Makes the options from the colours of the current scheme. */
  option: (colors: Colors) => EChartsCoreOption;
  onClick?: (data: unknown) => void;
}

export default function Canvas({ option, onClick }: CanvasProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType | null>(null);
  const scheme = useComputedColorScheme();

  useEffect(() => {
    if (!box.current) return;
    const made = init(box.current);
    chart.current = made;
    const sizes = new ResizeObserver(() => made.resize());
    sizes.observe(box.current);
    return () => {
      sizes.disconnect();
      made.dispose();
      chart.current = null;
    };
  }, []);

  useEffect(() => {
    if (!box.current || !chart.current) return;
    const options = { animation: false, textStyle: { fontFamily: getComputedStyle(box.current).fontFamily } };
    chart.current.setOption({ ...options, ...option(read(box.current)) }, { replaceMerge: ["series", "parallelAxis"] });
  }, [option, scheme]);

  useEffect(() => {
    const made = chart.current;
    if (!made || !onClick) return;
    const listener = (event: { data?: unknown }) => onClick(event.data);
    made.on("click", listener);
    return () => {
      if (!made.isDisposed()) made.off("click", listener);
    };
  }, [onClick]);

  return <div ref={box} style={{ position: "absolute", inset: 0 }} />;
}

function read(element: Element): Colors {
  const style = getComputedStyle(element);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: of("--mantine-color-text"),
    muted: of("--mantine-color-dimmed"),
    line: of("--line"),
    surface: of("--surface"),
    accent: of("--accent"),
    bad: of("--bad"),
    border: of("--mantine-color-default-border"),
  };
}
