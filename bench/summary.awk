# bench/summary.awk - from the results of each round to a summary: median, least and most

BEGIN { FS = OFS = "\t" }

# The numbers in a list, sorted into x; returns how many.
function sorted(list, x,  n, i, j, t) {
	n = split(list, x, " ")
	for (i = 2; i <= n; i++) {
		t = x[i] + 0
		for (j = i - 1; j > 0 && x[j] + 0 > t; j--)
			x[j + 1] = x[j]
		x[j + 1] = t
	}
	return n
}

function summary(list,  n, x) {
	n = sorted(list, x)
	if (n == 0)
		return "-" OFS "-" OFS "-"
	return sprintf("%.6g", n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2) OFS \
		sprintf("%.6g", x[1]) OFS sprintf("%.6g", x[n])
}

# The first and the last tenth have a line of their own.
/^#/ || $1 == "case" || $4 ~ /tenth [0-9]/ { next }

{
	key = $1 OFS $2 OFS $4 OFS $5
	if (!(key in rounds))
		order[++n] = key
	rounds[key]++
	shedlock[key] = shedlock[key] " " $6
	if ($7 != "-")
		other[key] = other[key] " " $7
	if ($8 != "-")
		ratio[key] = ratio[key] " " $8
}

END {
	print "case", "clients", "measure", "peer", "rounds", "shedlock", "least", "most", "peer's", "least", "most", "ratio", "least", "most"
	for (i = 1; i <= n; i++)
		print order[i], rounds[order[i]], summary(shedlock[order[i]]), summary(other[order[i]]), summary(ratio[order[i]])
}
