#!/bin/sh
# scripts/demo.d/watcher.sh - what a host runs that watches; HOST in the environment is its name

# show watch
exec shedlock --watch --every 1s --locked-by "$HOST" -- tell.sh
