#!/bin/sh
# scripts/demo.d/backup.sh - the job of the hosts of part 3, in ten steps
#
# Each step adds a line to a file of both hosts: host, tick, attempt, step and time.

for step in 1 2 3 4 5 6 7 8 9 10; do
    echo "$HOST,$SHEDLOCK_TICK,$SHEDLOCK_ATTEMPT,$step,$(date +%s.%N)" >>backup.csv
    sleep 0.5
done
