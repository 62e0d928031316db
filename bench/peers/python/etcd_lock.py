"""Locks of etcd"""
import base64
import http.client
import json
import os
import subprocess
import sys

import replica
from replica import ADDRESS, GROUP, LEASE, NUMBER, Contender, work


class Etcd(Contender):
    """A lease and a key that is created if it is not there, as the Python client etcd3 does it, by etcd's JSON."""

    def connect(self):
        self.http = http.client.HTTPConnection(ADDRESS, 2379)

    def post(self, path, **body):
        self.http.request("POST", f"/v3/{path}", json.dumps(body))
        return json.load(self.http.getresponse())

    def attempt(self, tick):
        lease = self.post("lease/grant", TTL=str(int(LEASE)))["ID"]
        key = base64.b64encode(GROUP.encode()).decode()
        if self.post("kv/txn", compare=[{"key": key, "target": "CREATE", "create_revision": "0"}],
                     success=[{"request_put": {"key": key, "value": key, "lease": lease}}]).get("succeeded"):
            work(tick)
        self.post("lease/revoke", ID=lease)


class EtcdctlLock(Contender):
    """etcdctl lock starts this program again as the leader."""

    def run(self):
        subprocess.run(["etcdctl", "--endpoints", f"{ADDRESS}:2379", "lock", "--ttl", str(int(LEASE)), GROUP,
                        sys.executable, replica.__file__, "etcd_lock.Leader", NUMBER],
                       env=dict(os.environ, ETCDCTL_API="3", START=str(replica.start)), check=False)


class Leader(Contender):
    def attempt(self, tick):
        work(tick)
