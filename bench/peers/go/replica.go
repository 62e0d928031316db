// A replica of a service, for what lives in Go: replica CONTENDER NUMBER.
// python/replica.py has the protocol.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	number                      = os.Args[2]
	group, cron, zone, log      = os.Getenv("GROUP"), os.Getenv("CRON"), os.Getenv("ZONE"), os.Getenv("LOG")
	url                         = fmt.Sprintf("postgres://postgres@%s:5432/%s", os.Getenv("ADDRESS"), os.Getenv("DATABASE"))
	tick, lease, workTime, skew = seconds("TICK"), seconds("LEASE"), seconds("WORK"), seconds("SKEW")
	start                       time.Time
	data                        *pgx.Conn
	contenders                  = map[string]contender{"river": &riverContender{}}
)

type contender interface {
	connect(ctx context.Context) error // before "ready"
	run(ctx context.Context) error     // begins to work
	pair(ctx context.Context) int      // for RATE: works off jobs, and returns how many
}

func seconds(name string) time.Duration {
	value, err := strconv.ParseFloat(os.Getenv(name), 64)
	must(err)
	return time.Duration(value * float64(time.Second))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Returns what the six replicas of a tool share.
func names() []string {
	jobs, err := strconv.Atoi(os.Getenv("JOBS"))
	must(err)
	if jobs == 1 {
		return []string{group}
	}
	var all []string
	for n := range jobs {
		all = append(all, fmt.Sprintf("%s_%d", group, n))
	}
	return all
}

// Returns the time as text: seconds since 1970.
func unix(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMicro())/1e6, 'f', 4, 64)
}

func line(kind, tick, text string) {
	file, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	must(err)
	defer file.Close()
	fmt.Fprintf(file, "%s %s %s %s %s\n", kind, tick, number, unix(time.Now()), text)
}

func failed(tick string, err error) {
	line("error", tick, strings.Join(strings.Fields(err.Error()), " "))
}

// The job; due is when the tick was due, if the tool says that and the tick does not.
func work(ctx context.Context, tick, due string) {
	line("begin", tick, due)
	time.Sleep(workTime)
	if data != nil {
		if _, err := data.Exec(ctx, "INSERT INTO written (replica) VALUES ($1::int)", number); err != nil {
			line("refused", tick, err.Error())
		} else {
			line("wrote", tick, "")
		}
	}
	line("end", tick, "")
}

// Says every half a second how many pairs there were.
func rate(ctx context.Context, one contender) {
	for count, told := 0, time.Now(); ; {
		count += one.pair(ctx)
		if time.Since(told) >= time.Second/2 {
			line("pairs", strconv.Itoa(count), "")
			count, told = 0, time.Now()
		}
	}
}

func main() {
	ctx := context.Background()
	one := contenders[os.Args[1]]
	must(one.connect(ctx))
	if os.Getenv("WRITE") == "yes" {
		var err error
		data, err = pgx.Connect(ctx, url)
		must(err)
	}
	fmt.Println("ready")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	at, err := strconv.ParseFloat(strings.TrimSpace(answer), 64)
	must(err)
	start = time.UnixMicro(int64(at * 1e6))
	time.Sleep(time.Until(start))
	if os.Getenv("RATE") == "yes" {
		rate(ctx, one)
	}
	must(one.run(ctx))
	select {}
}
