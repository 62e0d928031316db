// A replica of a service, for what lives in Node: node replica.mjs FILE NUMBER, beside
// node_modules.  python/replica.py has the protocol.  A file exports
//
//	async connect({name, names, connectionString, address, schedule, ...})   before "ready"
//	async run()                                                              begins to work
//	async pair()                                                             for RATE; returns how many
import fs from 'node:fs'
import readline from 'node:readline'

const [file, number] = process.argv.slice(2)
const { GROUP: group, DATABASE: database, ADDRESS: address, LOG: log, CRON: cron, ZONE: zone } = process.env
const [every, jitter, tick, lease, workTime, times, jobs, skew] =
	['EVERY', 'JITTER', 'TICK', 'LEASE', 'WORK', 'TIMES', 'JOBS', 'SKEW'].map(name => Number(process.env[name]))
const names = jobs === 1 ? [group] : Array.from({ length: jobs }, (_, n) => `${group}_${n}`)
const connectionString = `postgres://postgres@${address}/${database}`
const now = () => Date.now() / 1000 - skew
const sleep = seconds => new Promise(resolve => setTimeout(resolve, Math.max(0, seconds * 1000)))
let start, data

const line = (kind, of, text = '') => fs.appendFileSync(log, `${kind} ${of} ${number} ${now().toFixed(4)} ${text}\n`)
const failed = (of, error) => line('error', of, `${error.name} ${error.message}`.replace(/\s+/g, ' ').slice(0, 200))
process.on('unhandledRejection', error => failed('-', error))

// The job; due is when the tick was due, if the tool says that and the tick does not.
async function work(of, due = '') {
	line('begin', of, due)
	await sleep(workTime)
	if (data) {
		try {
			await data.query('INSERT INTO written (replica) VALUES ($1)', [number])
			line('wrote', of)
		} catch (error) {
			line('refused', of, error.message)
		}
	}
	line('end', of)
}

// Calls attempt() as a timer of one's own would.
async function timer(attempt) {
	for (let n = 0; n < times; n++) {
		const at = start + n * every + Math.random() * jitter
		if (every > 0 && at + every < now()) continue
		await sleep(at - now())
		try {
			await attempt(Math.floor(at / tick) * tick)
		} catch (error) {
			failed(n, error)
		}
	}
}

async function rate(pair) {
	for (let count = 0, told = now(); now() < start + times * every; ) {
		count += await pair()
		if (now() >= told + 0.5) {
			line('pairs', count)
			count = 0
			told = now()
		}
	}
}

const contender = await import(`./${file}`)
await contender.connect({
	group, names, connectionString, address, cron, zone, tick, lease, work, timer, line, failed, sleep
})
if (process.env.WRITE === 'yes') {
	const { default: pg } = await import('pg')
	data = new pg.Client({ connectionString })
	await data.connect()
}
console.log('ready')
readline.createInterface({ input: process.stdin }).once('line', async answer => {
	start = Number(answer)
	setTimeout(() => process.exit(), (start + times * every + 2 - now()) * 1000)
	await sleep(start - now())
	await (process.env.RATE === 'yes' ? rate(contender.pair) : contender.run())
})
