// BullMQ: a job scheduler on Redis
import { Queue, Worker } from 'bullmq'

let replica, connection, queue

export async function connect(with_) {
	replica = with_
	connection = { host: replica.address, maxRetriesPerRequest: null }
	queue = new Queue(replica.group, { connection })
	queue.on('error', () => {})
	await queue.waitUntilReady()
}

export async function run() {
	const { group, names, cron, zone, tick, work, failed } = replica
	for (const name of names)
		await queue.upsertJobScheduler(name, cron ? { pattern: cron, tz: zone } : { every: tick * 1000 }, { name })
	new Worker(group, job => work(job.id, (job.timestamp + (job.opts.delay ?? 0)) / 1000), { connection })
		.on('error', error => failed('-', error))
}
