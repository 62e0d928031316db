// pg-boss: sends a job that is stored once a tick, and works it
import { PgBoss } from 'pg-boss'

let replica, boss

export async function connect(with_) {
	replica = with_
	boss = new PgBoss({ connectionString: replica.connectionString, schedule: replica.cron !== '' })
	boss.on('error', error => replica.failed('-', error))
	await boss.start()
	for (const name of replica.names) {
		await boss.createQueue(name)
		if (replica.cron !== '') await boss.schedule(name, replica.cron, {}, { tz: replica.zone })
	}
}

export async function run() {
	const { names, cron, tick, lease, work } = replica
	// Each 2 s is the default, 0.5 s the least, for a job that is due each second.
	for (const name of names)
		await boss.work(name, { pollingIntervalSeconds: cron === '' ? 0.5 : 2 }, ([job]) => work(job.id))
	if (cron === '')
		await replica.timer(() => boss.send(names[0], {}, { singletonSeconds: tick, expireInSeconds: lease, retryLimit: 2 }))
}

export async function pair() {
	await boss.insert(replica.group, Array.from({ length: 10 }, () => ({})))
	const done = await boss.fetch(replica.group, { batchSize: 10 })
	await boss.complete(replica.group, done.map(job => job.id))
	return done.length
}
