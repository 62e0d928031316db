"""A key in Redis, as its documentation says: SET NX PX, and DEL if it has the value"""
import time

import redis
from replica import ADDRESS, GROUP, LEASE, NUMBER, Contender, work


class Redis(Contender):
    DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

    def connect(self):
        self.redis = redis.Redis(host=ADDRESS)
        self.redis.ping()

    def attempt(self, tick):
        value = f"{NUMBER} {tick} {time.time()}"
        if self.redis.set(GROUP, value, nx=True, px=int(LEASE * 1000)):
            work(tick)
            self.redis.eval(self.DELETE, 1, GROUP, value)
