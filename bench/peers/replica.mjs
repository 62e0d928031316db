// A replica of a service with a timer, for what lives in Node: as replica.py, which has the
// protocol.  Each group has a database of its own.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import readline from 'node:readline'

const require = createRequire(process.cwd() + '/')
const [contender, number] = process.argv.slice(2)
const { GROUP: group, ADDRESS: address, LOG: log } = process.env
const [every, jitter, tick, lease, workTime, times] =
	['EVERY', 'JITTER', 'TICK', 'LEASE', 'WORK', 'TIMES'].map(name => Number(process.env[name]))
const connectionString = `postgres://postgres@${address}/${group}`
const now = () => Date.now() / 1000
const sleep = seconds => new Promise(resolve => setTimeout(resolve, Math.max(0, seconds * 1000)))
let start

const line = (kind, of, text = '') => fs.appendFileSync(log, `${kind} ${of} ${number} ${now().toFixed(4)} ${text}\n`)
const failed = (of, error) => line('error', of, `${error.name} ${error.message}`.replace(/\s+/g, ' ').slice(0, 200))
process.on('unhandledRejection', error => failed('-', error))

async function work(of) {
	line('begin', of)
	await sleep(workTime)
	line('end', of)
}

async function timer(attempt) {
	for (let n = 0; n < times; n++) {
		const at = start + n * every + Math.random() * jitter
		if (every > 0 && at + every < now()) continue
		await sleep(at - now())
		try {
			await attempt(Math.floor(at / tick))
		} catch (error) {
			failed(n, error)
		}
	}
}

const contenders = {
	async redlock() {
		const Redis = require('ioredis')
		const Redlock = require('redlock').default
		const redlock = new Redlock([new Redis({ host: address })], { retryCount: 0 })

		redlock.on('error', () => {})
		return () => timer(async of => {
			let lock
			try {
				lock = await redlock.acquire([group], lease * 1000)
			} catch (error) {
				if (error.name === 'ExecutionError') return
				throw error
			}
			await work(of)
			await lock.release()
		})
	},

	async pgboss() {
		const { PgBoss } = require('pg-boss')
		const boss = new PgBoss({ connectionString, schedule: false })

		boss.on('error', error => failed('-', error))
		await boss.start()
		await boss.createQueue('job')
		return async () => {
			await sleep(start - now())
			await boss.work('job', { pollingIntervalSeconds: 0.5 }, ([job]) => work(job.id))
			await timer(() => boss.send('job', {}, { singletonSeconds: tick, expireInSeconds: lease, retryLimit: 2 }))
		}
	},

	async graphile() {
		const { run, parseCronItems, Logger, runMigrations } = require('graphile-worker')
		const logger = new Logger(() => () => {})

		await runMigrations({ connectionString, logger })
		return async () => {
			await sleep(start - now())
			await run({
				connectionString, logger, concurrency: 1, noHandleSignals: true,
				parsedCronItems: parseCronItems([{ task: 'job', match: '* * * * *', options: { maxAttempts: 3 } }]),
				taskList: { job: payload => work(payload._cron.ts) }
			})
		}
	},

	async bullmq() {
		const { Queue, Worker } = require('bullmq')
		const connection = { host: address, maxRetriesPerRequest: null }
		const queue = new Queue(group, { connection })

		queue.on('error', () => {})
		await queue.waitUntilReady()
		return async () => {
			await sleep(start - now())
			await queue.upsertJobScheduler('job', { every: tick * 1000 }, { name: 'job' })
			new Worker(group, job => work(job.id), { connection }).on('error', error => failed('-', error))
		}
	}
}

const run = await contenders[contender]()
console.log('ready')
readline.createInterface({ input: process.stdin }).once('line', async answer => {
	start = Number(answer)
	setTimeout(() => process.exit(), (start + times * every + 2 - now()) * 1000)
	await run()
})
