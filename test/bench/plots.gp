# test/bench/plots.gp - bars from what plots.awk has written; folder is given

set encoding utf8
set style data histograms
set style histogram clustered gap 1
set style fill solid 1.0 noborder
set boxwidth 0.85
set grid ytics linecolor rgb "#dddddd"
set border 1 linecolor rgb "#888888"
set tics nomirror
set xtics scale 0
set ytics scale 0
set yrange [0:*]
set format y "%.0f"
set key top right samplen 1.5
# readable on light and dark pages
set terminal svg size 640,320 dynamic font "sans-serif,13" background rgb "white"

set title "Acquire of a lock that somebody else holds: calls a second"
set output folder."/bench-busy.svg"
plot "busy.dat" using 2:xticlabels(1) title "1 client" linecolor rgb "#336791", \
	"" using 3 title "8 clients" linecolor rgb "#9fb9d0"

set title "Acquire and release of free locks: pairs a second, fsync on"
set output folder."/bench-pair.svg"
plot "pair.dat" using 2:xticlabels(1) title "1 client" linecolor rgb "#336791", \
	"" using 3 title "8 clients" linecolor rgb "#9fb9d0"

set title "100 connections want one lock: milliseconds to the last answer"
set output folder."/bench-stampede.svg"
plot "stampede.dat" using 2:xticlabels(1) title "median" linecolor rgb "#336791"
