"""The servers that the tools store in"""
import atexit
import http.client
import os
import re
import shutil
import socket
import subprocess

from processes import said, spawn


def psql(statement, database="postgres"):
    return said("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", os.getcwd(), "-U", "postgres", "-d", database, "-c", statement)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def etcd(path):
    connection = http.client.HTTPConnection("127.0.0.1", 2379)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def zookeeper(word):
    with socket.create_connection(("127.0.0.1", 2181)) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def start_redis():
    # Debian's redis-tools has the server's program by another name.  It does not start under the clock
    # of the night, of which it has no need: those who schedule have it.
    spawn("redis", "redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "yes",
          executable=shutil.which("redis-check-rdb"), env={**os.environ, "LD_PRELOAD": ""})
    return 6379


# What each group of replicas finds in its database: the extension, tables of other tools, and
# the table that is written to.  The procedure is the work of the contenders that work in the server.
DATABASE = """
    CREATE EXTENSION shedlock;
    CREATE SCHEMA peer;
    CREATE TABLE peer.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
        locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
    CREATE TABLE peer.job AS SELECT 'job' AS name;
    CREATE TABLE peer.tick (name text, tick timestamptz, PRIMARY KEY (name, tick));
    CREATE TABLE written (id bigserial, replica integer);
    CREATE FUNCTION line(log text, replica integer, kind text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('COPY (SELECT %L) TO PROGRAM %L', format('%s %s %s %s', kind,
            extract(epoch FROM current_setting('shedlock.tick')::timestamptz), replica,
            extract(epoch FROM clock_timestamp())), 'cat >>' || log);
    END $$;
    CREATE PROCEDURE work(log text, replica integer, takes float) LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM line(log, replica, 'begin');
        PERFORM pg_sleep(takes);
        PERFORM line(log, replica, 'end');
    END $$"""


def start_postgres():
    said("initdb", "-D", "main", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    # pg_cron looks for its database when the server starts.
    subprocess.run(["postgres", "--single", "-D", "main", "postgres"], input=b"CREATE DATABASE cron", check=True,
                   capture_output=True)
    with open("main/postgresql.conf", "a", encoding="utf-8") as conf, open(os.environ["SETTINGS"], encoding="utf-8") as more:
        conf.write(f"""{more.read()}
listen_addresses = '0.0.0.0'
unix_socket_directories = '{os.getcwd()}'
max_connections = 1000
shared_preload_libraries = 'pg_cron,pg_stat_statements'
pg_stat_statements.max = 50000
cron.host = '{os.getcwd()}'
cron.database_name = 'cron'
""")
    with open("main/pg_hba.conf", "a", encoding="utf-8") as hba:
        hba.write("host all all 10.77.0.0/16 trust\n")
    said("pg_ctl", "-D", "main", "-l", "postgres.log", "-w", "start")
    atexit.register(said, "pg_ctl", "-D", "main", "-m", "immediate", "stop")
    psql("CREATE EXTENSION pg_stat_statements")
    psql("CREATE DATABASE peer")
    psql(DATABASE, "peer")
    psql("CREATE EXTENSION pg_cron; " + DATABASE, "cron")
    return 5432


def start_etcd():
    spawn("etcd", "etcd", "--data-dir", "etcd", "--listen-client-urls", "http://0.0.0.0:2379",
          "--advertise-client-urls", "http://127.0.0.1:2379")
    return 2379


def start_zookeeper():
    # The JAR names its libraries by where they are installed.
    jars = next(folder for folder in (f"{os.environ['UNPACKED']}/usr/share/java", "/usr/share/java")
                if os.path.exists(f"{folder}/zookeeper.jar"))
    os.mkdir("zookeeper")
    with open("zoo.cfg", "w", encoding="utf-8") as conf:
        conf.write(f"tickTime=2000\ndataDir={os.getcwd()}/zookeeper\nclientPort=2181\nadmin.enableServer=false\n"
                   "4lw.commands.whitelist=srvr\n")
    spawn("zookeeper", "java", "-Xmx256m", "-cp", f"{jars}/zookeeper.jar:{jars}/*",
          "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
    return 2181


SERVERS = {"postgres": start_postgres, "redis": start_redis, "etcd": start_etcd, "zookeeper": start_zookeeper}
# How many changes a store has made
CHANGES = {
    "postgres": lambda: int(psql("SELECT pg_snapshot_xmax(pg_current_snapshot())")),
    "redis": lambda: int(re.search(r"^rdb_changes_since_last_save:(\d+)", said("redis-cli", "info"), re.M)[1]),
    "etcd": lambda: int(float(re.search(r"^etcd_server_proposals_committed_total (\S+)", etcd("/metrics"), re.M)[1])),
    "zookeeper": lambda: int(re.search(r"^Zxid: (\S+)", zookeeper("srvr"), re.M)[1], 16),
}


def calls(store, database):
    """Returns how many statements the database, or how many commands the store has got; None if it does not say."""
    if store == "postgres":
        return int(psql(f"""
            SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid
            WHERE datname = '{database}' AND query NOT LIKE '%pg_stat_statements%'"""))
    if store == "redis":
        return sum(map(int, re.findall(r"^cmdstat_(?!info).*:calls=(\d+)", said("redis-cli", "info", "commandstats"), re.M)))
    return None
