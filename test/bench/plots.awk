# test/bench/plots.awk - from the results to the data of the plots: medians
#
# Writes busy.dat, pair.dat and stampede.dat into folder.

function median(list,  x, n, i, j, t) {
	n = split(list, x, " ")
	for (i = 2; i <= n; i++) {
		t = x[i] + 0
		for (j = i - 1; j > 0 && x[j] + 0 > t; j--)
			x[j + 1] = x[j]
		x[j + 1] = t
	}
	return n % 2 ? x[(n + 1) / 2] + 0 : (x[n / 2] + x[n / 2 + 1]) / 2
}

# A line: label, then one median for each number of clients.
function line(file, label, case, measure, peer, clients,  n, i, c, text) {
	text = "\"" label "\""
	n = split(clients, c, " ")
	for (i = 1; i <= n; i++)
		text = text "\t" median(values[case, c[i], measure, peer])
	print text >(folder "/" file)
}

# A round has ours in each of its lines: it counts once, with the first peer.
{
	values[$1, $2, $4, $5] = values[$1, $2, $4, $5] " " $7
	values[$1, $2, $4, $5, "ours"] = values[$1, $2, $4, $5, "ours"] " " $6
}

function ours(file, case, measure, peer, clients,  n, i, c, text) {
	text = "\"shedlock\""
	n = split(clients, c, " ")
	for (i = 1; i <= n; i++)
		text = text "\t" median(values[case, c[i], measure, peer, "ours"])
	print text >(folder "/" file)
}

END {
	ours("busy.dat", "busy", "calls/s", "SELECT 1", "1 8")
	line("busy.dat", "SELECT 1", "busy", "calls/s", "SELECT 1", "1 8")
	line("busy.dat", "ShedLock, later tries", "busy", "calls/s", "ShedLock, later tries", "1 8")
	line("busy.dat", "ShedLock, upsert", "busy", "calls/s", "ShedLock, upsert", "1 8")
	ours("pair.dat", "pair", "pairs/s", "ShedLock", "1 8")
	line("pair.dat", "two UPDATEs", "pair", "pairs/s", "two UPDATEs", "1 8")
	line("pair.dat", "ShedLock", "pair", "pairs/s", "ShedLock", "1 8")
	ours("stampede.dat", "stampede", "ms to the last answer", "ShedLock, upsert", "100")
	line("stampede.dat", "pg_try_advisory_lock", "stampede", "ms to the last answer", "pg_try_advisory_lock", "100")
	line("stampede.dat", "ShedLock, upsert", "stampede", "ms to the last answer", "ShedLock, upsert", "100")
}
