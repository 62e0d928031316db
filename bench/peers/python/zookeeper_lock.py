"""kazoo's lock: an ephemeral sequential node of ZooKeeper"""
from kazoo.client import KazooClient
from replica import ADDRESS, GROUP, LEASE, NUMBER, Contender, work


class ZooKeeper(Contender):
    def connect(self):
        self.client = KazooClient(hosts=f"{ADDRESS}:2181", timeout=LEASE)
        self.client.start()
        self.lock = self.client.Lock(f"/{GROUP}", NUMBER)

    def attempt(self, tick):
        if self.lock.acquire(blocking=False):
            work(tick)
            self.lock.release()


class ZooKeeperLeader(ZooKeeper):
    leads = False

    def attempt(self, tick):
        self.leads = self.leads and self.client.connected or self.lock.acquire(blocking=False)
        if self.leads:
            work(tick)
