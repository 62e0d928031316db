#!/bin/sh
# scripts/demo.d/host.sh - what the cron daemon of a host does, each second instead of
# each minute; HOST in the environment is its name

while :; do

# show crontab
shedlock --name nightly-backup --once-every '1 day' --attempts 2 \
    --lease 6s --locked-by "$HOST" --verbose -- backup.sh

    echo "exit status $?"
    sleep 1
done
