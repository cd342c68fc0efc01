// The parts of ECharts that the page uses.

import { BarChart, LineChart, ParallelChart } from "echarts/charts";
import { GridComponent, ParallelComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, LineChart, ParallelChart, GridComponent, ParallelComponent, TooltipComponent, CanvasRenderer]);

export { init };
export type { EChartsCoreOption, EChartsType } from "echarts/core";
