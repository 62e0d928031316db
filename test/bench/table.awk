# test/bench/table.awk - the limits and the summary as a table in Markdown

# A number with three significant digits
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

function reached(value, operator, limit) {
	return operator == "<=" ? value <= limit + 0 : value >= limit + 0
}

FNR == 1 { file++ }
/^#/ { next }

file == 1 {
	key = $1 SUBSEP $3 SUBSEP $4
	limits[key] = limits[key] (key in limits && limits[key] != "" ? "\n" : "") $5 "\t" $6 "\t" $7
	next
}

$1 == "case" {
	print "| case | clients | measure | shedlock | peer | peer's | ratio | wanted | |"
	print "|---|--:|---|--:|---|--:|--:|---|---|"
	next
}

{
	wanted = verdict = ""
	key = $1 SUBSEP $3 SUBSEP $4
	n = key in limits ? split(limits[key], line, "\n") : 0
	for (i = 1; i <= n; i++) {
		split(line[i], limit, "\t")
		value = limit[1] == "ratio" ? $12 : limit[1] == "shedlock" ? $6 : limit[1] == "worst" ? $8 : $7
		wanted = wanted (wanted == "" ? "" : ", ") \
			(limit[1] == "worst" && limit[3] > 0 ? "worst (" short(value) ") " : "") \
			(limit[2] == "<=" ? "≤ " : "≥ ") short(limit[3])
		if (!reached(value, limit[2], limit[3]))
			verdict = "**MISSED**"
		else if (verdict == "")
			verdict = "ok"
	}
	printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, short($6), $4 == "-" ? "" : $4,
		short($9), $12 == "-" ? "" : sprintf("%.2f", $12), wanted, verdict
}
