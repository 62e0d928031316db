# test/bench/table.awk - the results as a table in Markdown; after the limits

# A number with three digits that count.
function short(x) {
	if (x == "-" || x == "")
		return ""
	if (x >= 1000 || x <= -1000)
		return commas(sprintf("%.0f", x))
	return sprintf("%.3g", x) + 0
}

function commas(x) {
	while (x ~ /[0-9][0-9][0-9][0-9]/)
		sub(/[0-9][0-9][0-9]($|,)/, ",&", x)
	return x
}

# The median of the numbers in a list with blanks between them.
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

function extreme(list, sign,  x, n, i, most) {
	n = split(list, x, " ")
	most = x[1] + 0
	for (i = 2; i <= n; i++)
		if ((x[i] - most) * sign > 0)
			most = x[i] + 0
	return most
}

function reached(value, operator, limit) {
	return operator == "<=" ? value <= limit + 0 : value >= limit + 0
}

FNR == 1 { file++ }
/^#/ || $1 == "case" { next }

# The first and the last of them are in a line of their own.
$4 ~ /tenth [0-9]/ { next }

file == 1 {
	key = $1 SUBSEP $3 SUBSEP $4
	limits[key] = limits[key] (key in limits && limits[key] != "" ? "\n" : "") $5 "\t" $6 "\t" $7
	next
}

{
	key = $1 SUBSEP $2 SUBSEP $4 SUBSEP $5
	if (!(key in ours))
		order[++rows] = key
	ours[key] = ours[key] " " $6
	if ($7 != "-")
		theirs[key] = theirs[key] " " $7
	if ($8 != "-")
		ratio[key] = ratio[key] " " $8
}

END {
	print "| case | clients | measure | ours | peer | peer's | ratio | wanted | |"
	print "|---|--:|---|--:|---|--:|--:|---|---|"
	for (row = 1; row <= rows; row++) {
		key = order[row]
		split(key, part, SUBSEP)
		what = part[1] SUBSEP part[3] SUBSEP part[4]
		wanted = verdict = ""
		n = what in limits ? split(limits[what], line, "\n") : 0
		for (i = 1; i <= n; i++) {
			split(line[i], limit, "\t")
			if (limit[1] == "ratio")
				value = median(ratio[key])
			else if (limit[1] == "ours")
				value = median(ours[key])
			else
				value = extreme(ours[key], limit[1] == "worst" ? 1 : -1)
			wanted = wanted (wanted == "" ? "" : ", ") \
				(limit[1] == "worst" && limit[3] > 0 ? "worst (" short(value) ") " : "") \
				(limit[2] == "<=" ? "≤ " : "≥ ") short(limit[3])
			if (!reached(value, limit[2], limit[3]))
				verdict = "**MISSED**"
			else if (verdict == "")
				verdict = "ok"
		}
		printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", part[1], part[2], part[3],
			short(median(ours[key])), part[4] == "-" ? "" : part[4],
			key in theirs ? short(median(theirs[key])) : "",
			key in ratio ? sprintf("%.2f", median(ratio[key])) : "", wanted, verdict
	}
}
