# bench/table.awk - the limits and the summary as a table in Markdown
#
# With -v missed=1: only the lines that miss a limit, and the limits of these cases that
# no line is for.

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

# What could not be measured reaches no limit.
function reached(value, operator, limit) {
	if (value !~ /^-?[0-9]/)
		return 0
	return operator == "<=" ? value <= limit + 0 : value >= limit + 0
}

FNR == 1 { file++ }
/^#/ { next }

file == 1 {
	limits[++n] = $5 "\t" $6 "\t" $7
	case_of[n] = $1
	clients_of[n] = $2
	key_of[n] = $1 SUBSEP $3 SUBSEP $4
	next
}

$1 == "case" {
	if (missed)
		next
	print "| case | clients | measure | shedlock | peer | peer's | ratio | wanted | |"
	print "|---|--:|---|--:|---|--:|--:|---|---|"
	next
}

{
	wanted = verdict = ""
	key = $1 SUBSEP $3 SUBSEP $4
	measured[$1] = 1
	for (i = 1; i <= n; i++) {
		if (key_of[i] != key || (clients_of[i] != "*" && clients_of[i] != $2))
			continue
		used[i] = 1
		split(limits[i], limit, "\t")
		value = limit[1] == "ratio" ? $12 : limit[1] == "shedlock" ? $6 : limit[1] == "worst" ? $8 : $7
		wanted = wanted (wanted == "" ? "" : ", ") \
			(limit[1] == "worst" && limit[3] > 0 ? "worst (" short(value) ") " : "") \
			(limit[2] == "<=" ? "≤ " : "≥ ") short(limit[3])
		if (!reached(value, limit[2], limit[3]))
			verdict = "**MISSED**"
		else if (verdict == "")
			verdict = "ok"
	}
	if (missed && verdict != "**MISSED**")
		next
	printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, short($6), $4 == "-" ? "" : $4,
		short($9), $12 == "-" ? "" : sprintf("%.2f", $12), wanted, verdict
}

END {
	for (i = 1; missed && i <= n; i++)
		if (case_of[i] in measured && !(i in used)) {
			split(key_of[i], part, SUBSEP)
			printf "| %s | %s | %s | | %s | | | | **not measured** |\n", part[1], clients_of[i], part[2], part[3] == "-" ? "" : part[3]
		}
}
