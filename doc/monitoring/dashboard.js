// Prints dashboard.json, the dashboard of Grafana for shedlock; see doc/monitoring.md.
//
//	cp -R doc/monitoring /tmp/board && cd /tmp/board && npm ci && node dashboard.js >dashboard.json
//
// test/slow/monitoring-prometheus.pl does so, and compares.
'use strict';

const sdk = (module) => require(`@grafana/grafana-foundation-sdk/${module}`);
const common = sdk('common');
const dashboard = sdk('dashboard');
const { DataqueryBuilder, PromQueryFormat } = sdk('prometheus');

const datasource = { type: 'prometheus', uid: '${datasource}' };
const jobs = 'datname=~"$datname", name=~"$name"';
const runs = 'kind=~"run|leased run"';
const failures = 'outcome=~"failed|timed out|lost"';

// What a job does, the first that is true; the numbers are mapped to words and colours.
const states = [
	['at work', 'blue', `shedlock_lock_held_seconds{${runs}, ${jobs}}`],
	['paused', 'purple', `shedlock_lock_paused{${jobs}} == 1`],
	['overdue', 'orange', `shedlock_job_overdue_seconds{${jobs}} > 0`],
	['gave up', 'dark-red', `shedlock_job_gave_up{${jobs}} == 1`],
	['last run failed', 'light-red',
		`shedlock_run_last_failure_timestamp_seconds{${jobs}} > shedlock_run_last_success_timestamp_seconds{${jobs}}`],
	['idle', 'text', `shedlock_run_last_success_timestamp_seconds{${jobs}}`],
];
const colours = { succeeded: 'green', failed: 'red', 'timed out': 'orange', cancelled: 'purple', lost: 'dark-red' };

// By how much a counter has grown in a day.  increase() would not see a first run, whose
// series begins with 1.
const in_a_day = (counter) => `clamp_min(${counter} - (${counter} offset 1d or ${counter} * 0), 0)`;

let queries;
let panels = 0;

// A query of the panel at hand; its refId is the next letter.
const query = (expr) => new DataqueryBuilder().refId(String.fromCharCode(65 + queries++)).expr(expr);
const over_time = (expr, legend) => query(expr).range().legendFormat(legend);
const now = (expr) => query(expr).instant();
const as_table = (expr) => now(expr).format(PromQueryFormat.Table);

function panel(kind, title, width, height, description)
{
	const { PanelBuilder } = sdk(kind);

	queries = 0;
	return new PanelBuilder().id(++panels).title(title).description(description)
		.datasource(datasource).span(width).height(height);
}

// A number that is red from a limit on, or never.
function figure(title, expr, description, red)
{
	const steps = [{ value: null, color: 'green' }];

	if (red)
		steps.push({ value: 1, color: 'red' });
	return panel('stat', title, 4, 4, description)
		.decimals(0)
		.colorMode(common.BigValueColorMode.Value)
		.graphMode(common.BigValueGraphMode.None)
		.thresholds(new dashboard.ThresholdsConfigBuilder().mode(dashboard.ThresholdsMode.Absolute).steps(steps))
		.withTarget(now(`${expr} or vector(0)`));
}

const lines = (title, unit, description) => panel('timeseries', title, 12, 8, description)
	.unit(unit)
	.min(0)
	.tooltip(new common.VizTooltipOptionsBuilder().mode(common.TooltipDisplayMode.Multi).sort(common.SortOrder.Descending));

// Columns: label or "Value #A", title, unit or mappings.  Other labels are hidden.
function table(title, width, description, columns)
{
	const shown = columns.map(([name]) => name);
	const built = panel('table', title, width, 9, description)
		.withTransformation({ id: 'merge', options: {} })
		.withTransformation({
			id: 'filterFieldsByName',
			options: { include: { names: shown } },
		})
		.withTransformation({
			id: 'organize',
			options: {
				excludeByName: {},
				indexByName: Object.fromEntries(shown.map((name, index) => [name, index])),
				renameByName: Object.fromEntries(columns.map(([name, heading]) => [name, heading])),
			},
		});

	for (const [, heading, ...properties] of columns)
		if (properties.length > 0)
			built.overrideByName(heading, properties);
	return built;
}

const unit = (value) => ({ id: 'unit', value });
const word_for_0 = (text) => ({ id: 'mappings', value: [{ type: 'value', options: { 0: { text } } }] });
const never = word_for_0('never');
const by_job = (expr) => `max by (datname, name) (${expr})`;

const board = new dashboard.DashboardBuilder('shedlock')
	.uid('shedlock')
	.description('Locks, runs and jobs of shedlock, from prometheus-postgres-exporter with queries.yaml')
	.tags(['shedlock', 'postgresql'])
	.editable()
	.timezone('browser')
	.time({ from: 'now-24h', to: 'now' })
	.refresh('1m')
	.tooltip(dashboard.DashboardCursorSync.Crosshair)
	.withVariable(new dashboard.DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'));

for (const [label, title] of [['datname', 'Database'], ['name', 'Name']])
	board.withVariable(new dashboard.QueryVariableBuilder(label)
		.label(title)
		.datasource(datasource)
		.query(`label_values({__name__=~"shedlock_info|shedlock_run_gave_up_total|shedlock_lock_waiters"}, ${label})`)
		.refresh(dashboard.VariableRefresh.OnTimeRangeChanged)
		.sort(dashboard.VariableSort.AlphabeticalAsc)
		.multi(true)
		.includeAll(true)
		.allValue('.*')
		.current({ selected: true, text: 'All', value: '$__all' }));

board
	.withPanel(figure('Runs at work', `count(shedlock_lock_held_seconds{${runs}, ${jobs}})`,
		'Runs that hold their lock now'))
	.withPanel(figure('Other locks held', `count(shedlock_lock_held_seconds{kind=~"lease|session", ${jobs}})`,
		'Leases and session locks that have a holder now'))
	.withPanel(figure('Overdue', `count(shedlock_job_overdue_seconds{${jobs}} > 0)`,
		'Jobs of which a run is late by more than their overdue_after', true))
	.withPanel(figure('Failures of the last day', `sum(${in_a_day(`shedlock_runs_total{${failures}, ${jobs}}`)})`,
		'Runs that failed, timed out or were lost', true))
	.withPanel(figure('Gave up in the last day', `sum(${in_a_day(`shedlock_run_gave_up_total{${jobs}}`)})`,
		'Ticks that were given up', true))
	.withPanel(figure('Paused', `count(shedlock_lock_paused{${jobs}} == 1)`,
		'Locks that cannot be acquired until they are resumed'))

	.withPanel(table('Problems now', 24, 'What is wrong with jobs now; empty if all is well.  shedlock_problems says more of each',
		[['datname', 'Database'], ['name', 'Job'], ['problem', 'Problem'],
			['Value', 'Since', unit('dateTimeFromNow'), word_for_0('not known')]])
		.height(6)
		.withTarget(as_table(`max by (datname, name, problem) (shedlock_problem_since_timestamp_seconds{${jobs}}) * 1000`)))

	.withPanel(panel('statetimeline', 'Timeline of runs', 24, 10,
		'What each job does.  A run that is shorter than the interval between two scrapes may leave no bar; shedlock_history has every run.')
		.mergeValues(true)
		.showValue(common.VisibilityMode.Never)
		.rowHeight(0.8)
		.fillOpacity(80)
		.lineWidth(0)
		.colorScheme(new dashboard.FieldColorBuilder().mode(dashboard.FieldColorModeId.Fixed))
		.mappings([{
			type: dashboard.MappingType.ValueToText,
			options: Object.fromEntries(states.map(([text, color], index) => [index, { text, color, index }])),
		}])
		.withTarget(over_time(states.map(([, , expr], index) => `${by_job(expr)} * 0 + ${index}`).join('\nor\n'), '{{name}}')))

	.withPanel(lines('Runs by outcome', 'short', 'Runs that ended in each interval')
		.decimals(0)
		.drawStyle(common.GraphDrawStyle.Bars)
		.fillOpacity(80)
		.lineWidth(0)
		.stacking(new common.StackingConfigBuilder().mode(common.StackingMode.Normal).group('A'))
		.overrides(Object.entries(colours).map(([outcome, fixedColor]) => ({
			matcher: { id: 'byName', options: outcome },
			properties: [{ id: 'color', value: { mode: 'fixed', fixedColor } }],
		})))
		.withTarget(over_time(`sum by (outcome) (increase(shedlock_runs_total{${jobs}}[$__rate_interval]))`, '{{outcome}}')))
	.withPanel(table('Failures of the last day', 12, 'Runs that failed, timed out or were lost, by job',
		[['datname', 'Database'], ['name', 'Job'], ['outcome', 'Outcome'], ['Value', 'Runs', { id: 'decimals', value: 0 }]])
		.height(8)
		.withTarget(as_table(`sum by (datname, name, outcome) (${in_a_day(`shedlock_runs_total{${failures}, ${jobs}}`)}) > 0`)))

	.withPanel(table('Running and held now', 12, 'Locks that have a holder; shedlock_locks names the holder',
		[['datname', 'Database'], ['name', 'Name'], ['kind', 'Kind'], ['Value #A', 'Held for', unit('s')], ['Value #B', 'Waiters']])
		.withTarget(as_table(`max by (datname, name, kind) (shedlock_lock_held_seconds{${jobs}})`))
		.withTarget(as_table(`max by (datname, name) (shedlock_lock_waiters{${jobs}})
	and on (datname, name) shedlock_lock_held_seconds{${jobs}}`)))
	.withPanel(table('Jobs', 12, 'Their last and next times',
		[['datname', 'Database'], ['name', 'Job'],
			['Value #A', 'Last success', unit('dateTimeFromNow'), never],
			['Value #B', 'Last failure', unit('dateTimeFromNow'), never],
			['Value #C', 'Next tick', unit('dateTimeFromNow')],
			['Value #D', 'Runs take', unit('s')]])
		.withTarget(as_table(`${by_job(`shedlock_run_last_success_timestamp_seconds{${jobs}}`)} * 1000`))
		.withTarget(as_table(`${by_job(`shedlock_run_last_failure_timestamp_seconds{${jobs}}`)} * 1000`))
		.withTarget(as_table(`${by_job(`shedlock_job_next_due_timestamp_seconds{${jobs}}`)} * 1000 < Inf`))
		.withTarget(as_table(`max by (datname, name) (shedlock_run_seconds_total{${jobs}})
	/ (sum by (datname, name) (shedlock_runs_total{outcome!="lost", ${jobs}}) > 0)`)))

	.withPanel(lines('Durations', 's', 'How long each run has been at work; the height of a tooth is the duration of a run')
		.withTarget(over_time(by_job(`shedlock_lock_held_seconds{${runs}, ${jobs}}`), '{{name}}')))
	.withPanel(lines('Overdue', 's', 'For how long runs that are due have not begun')
		.withTarget(over_time(`${by_job(`shedlock_job_overdue_seconds{${jobs}}`)} > 0`, '{{name}}')))

	.withPanel(lines('Waiters', 'short', 'Sessions that wait for a lock')
		.decimals(0)
		.withTarget(over_time(`${by_job(`shedlock_lock_waiters{${jobs}}`)} > 0`, '{{name}}')))
	.withPanel(lines('Lost runs', 'short', 'Runs whose process died, or whose lease ended before the run did, since the counters began')
		.decimals(0)
		.withTarget(over_time(`sum by (datname, name) (shedlock_runs_total{outcome="lost", ${jobs}}) > 0`, '{{name}}')));

process.stdout.write(`${JSON.stringify(board.build(), null, '\t')}\n`);
