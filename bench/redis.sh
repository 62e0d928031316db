# bench/redis.sh - acquire and release in Redis
# shellcheck shell=bash

case_redis() {
    local policy clients
    compile redis_pair
    for policy in everysec always; do
        redis_start "$policy"
        for clients in $CLIENTS; do
            in_turn redis "$clients" "pairs/s" "shedlock=rate postgres pair" \
                "Redis, appendfsync $policy=rate_of_redis"
        done
        redis_stop
    done
}

rate_of_redis() {
    run "$WORK/bin/redis_pair" "$WORK/s/redis" "$1" "$SLICE"
    VALUE=$(cat "$WORK/out")
}

redis_start() {
    as_user mkdir "$WORK/redis-$1"
    spawn bash -c 'exec -a redis-server redis-check-rdb "$@"' redis --port 0 --unixsocket "$WORK/s/redis" \
        --save "" --appendonly yes --appendfsync "$1" --dir "$WORK/redis-$1" >"$WORK/redis-$1.log"
    REDIS=$SPAWNED
    until [ -S "$WORK/s/redis" ]; do
        kill -0 "$REDIS" 2>/dev/null || { cat "$WORK/redis-$1.log"; die "redis-server did not start"; }
        run sleep 0.1
    done
}

redis_stop() {
    kill "$REDIS"
    wait "$REDIS" || true
}
