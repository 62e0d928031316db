#!/bin/sh
# scripts/demo.d/tell.sh - what the watchers run for each problem, and for its end

# show tell
printf '%s\t%s\n' "$(date +%s.%N)" "$(cat)" >>told
