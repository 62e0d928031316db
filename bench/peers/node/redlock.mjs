// redlock: a key on one Redis
import Redis from 'ioredis'
import Redlock from 'redlock'

let replica, redlock

export async function connect(with_) {
	replica = with_
	redlock = new (Redlock.default ?? Redlock)([new Redis({ host: replica.address })], { retryCount: 0 })
	redlock.on('error', () => {})
}

export const run = () => replica.timer(async of => {
	let lock
	try {
		lock = await redlock.acquire([replica.group], replica.lease * 1000)
	} catch (error) {
		if (error.name === 'ExecutionError') return
		throw error
	}
	await replica.work(of)
	await lock.release()
})
