// graphile-worker: its cron, whose least period is a minute
import { Logger, makeWorkerUtils, parseCronItems, run as start, runMigrations } from 'graphile-worker'

let replica, options, utils, runner, waiting, done = 0

export async function connect(with_) {
	replica = with_
	options = { connectionString: replica.connectionString, logger: new Logger(() => () => {}) }
	await runMigrations(options)
}

export const run = () => start({
	...options, concurrency: 1, noHandleSignals: true,
	parsedCronItems: parseCronItems(replica.names.map(task =>
		({ task, match: replica.cron || '* * * * *', options: { maxAttempts: 3 } }))),
	taskList: Object.fromEntries(replica.names.map(task =>
		[task, payload => replica.work(payload._cron.ts, Date.parse(payload._cron.ts) / 1000)]))
})

export async function pair() {
	utils ??= await makeWorkerUtils(options)
	runner ??= await start({ ...options, concurrency: 1, noHandleSignals: true, taskList: { none() { done++; waiting?.() } } })
	const before = done
	await utils.addJobs(Array.from({ length: 10 }, () => ({ identifier: 'none' })))
	while (done < before + 10) await new Promise(resolve => { waiting = resolve })
	return 10
}
