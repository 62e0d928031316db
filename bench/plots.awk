# bench/plots.awk - draws the summary as bars, in folder/bench-*.svg
#
# Each bar shows its value, so there is no axis.

function commas(x) {
	x = sprintf(x < 100 ? "%.1f" : "%.0f", x)
	while (x ~ /[0-9][0-9][0-9][0-9]/)
		sub(/[0-9][0-9][0-9]($|,)/, ",&", x)
	return x
}

function text(x, y, class, string) {
	return sprintf("  <text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, class == "" ? "" : " class=\"" class "\"", string)
}

# title; case; measure; clients, and peers, with semicolons between them
function plot(title, case, measure, clients, peers,  n, m, i, j, y, label, peer, client, value, most, svg) {
	n = split("shedlock;" peers, label, ";")
	m = split(clients, client, ";")
	for (i = 1; i <= n; i++)
		for (j = 1; j <= m; j++) {
			peer = case SUBSEP client[j] SUBSEP measure SUBSEP label[i == 1 ? 2 : i]
			value[i, j] = i == 1 ? shedlock[peer] : other[peer]
			if (value[i, j] > most)
				most = value[i, j]
		}
	y = 40
	for (i = 1; i <= n; i++) {
		svg = svg text(186, y + 11 * m + 2, "e" (i == 1 ? " b" : ""), label[i])
		for (j = 1; j <= m; j++) {
			svg = svg sprintf("  <rect class=\"%s\" x=\"196\" y=\"%d\" width=\"%.0f\" height=\"18\"/>\n",
				i == 1 ? "ours" : "peer", y, 290 * value[i, j] / most)
			svg = svg text(202 + 290 * value[i, j] / most, y + 14, "s",
				commas(value[i, j]) (m == 1 ? "" : " (" client[j] (client[j] == 1 ? " client)" : " clients)")))
			y += 20
		}
		y += 12
	}
	printf "%s", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"" y + 20 "\" viewBox=\"0 0 640 " y + 20 "\" role=\"img\" aria-label=\"" title "\">\n" \
		"  <style>\n" \
		"    text { fill: #1f2328; font: 13px sans-serif }\n" \
		"    .b { font-weight: bold } .e { text-anchor: end } .s { font-size: 12px } .m { font-size: 11px; opacity: 0.75 }\n" \
		"    .bg { fill: #ffffff } .ours { fill: #336791 } .peer { fill: #9aa7b4 }\n" \
		"    @media (prefers-color-scheme: dark) { .bg { fill: #0d1117 } text { fill: #e6edf3 } .ours { fill: #5b93c4 } .peer { fill: #6e7a86 } }\n" \
		"  </style>\n  <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n" text(12, 22, "b", title) svg text(12, y + 8, "m", case in conditions_of ? conditions_of[case] : conditions_of["all"]) "</svg>\n" >(folder "/bench-" case ".svg")
}

# The first line that names the case is of its last record, or else the one that names none.
/^#/ {
	conditions = cases = substr($0, 3)
	if (!sub(/: PostgreSQL.*/, "", cases))
		cases = "all"
	sub(/^[a-z ]+: /, "", conditions)
	gsub(/ \([^)]*\)|; load [^;]*/, "", conditions)
	sub(/[0-9]+ rounds/, "median of &", conditions)
	n = split(cases, name, " ")
	for (i = 1; i <= n; i++)
		if (!(name[i] in conditions_of))
			conditions_of[name[i]] = conditions
}

{
	shedlock[$1, $2, $3, $4] = $6
	other[$1, $2, $3, $4] = $9
}

END {
	plot("Attempts to acquire a lock that another client holds, per second", "busy", "calls/s", "1;8",
		"SELECT 1;ShedLock, later tries;ShedLock, upsert")
	plot("Acquires with their releases, of free locks, per second; fsync on", "pair", "pairs/s", "1;8", "two UPDATEs;ShedLock, UPDATE;ShedLock, upsert")
	plot("100 clients want one lock at once: ms to the last answer", "stampede", "ms to the last answer", "100",
		"pg_try_advisory_lock;ShedLock, upsert")
}
